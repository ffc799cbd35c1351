"""The consumer groups that wait for transactional offsets.

Offsets that a producer has sent in a transaction are records in `__consumer_offsets` that belong to it. Until its
marker is written there, a consumer of the group that wants stable offsets gets UNSTABLE_OFFSET_COMMIT. So the groups
are in the records between the last stable offset and the high watermark.
"""

import struct
from dataclasses import dataclass
from typing import Final

from broker_core.errors import InvalidBatch
from broker_core.records.batch import read_records
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.options.source import FetchLimits
from spark_eos.transactions.standstills import Standstill

_LIMITS: Final = FetchLimits(
    max_bytes=1 << 20, partition_max_bytes=1 << 20, min_bytes=1, max_wait_ms=100, poll_timeout_ms=5_000
)
# How much of a partition is read: a group that commits often writes much after a transaction that hangs.
_MOST_OFFSETS: Final = 20_000
_KEY_VERSIONS: Final = (0, 1)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """A group with pending offsets: which partition holds them, and whose transaction they are in."""

    group_id: str
    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    pending: tuple[TopicPartition, ...]


def waiting_groups(client: KafkaClient, standstill: Standstill, place: PartitionPlace) -> list[WaitingGroup]:
    """Read the groups with offsets in the open transactions of one partition of `__consumer_offsets`."""
    open_producers = {each.transaction.producer.producer_id for each in standstill.opened}
    start = standstill.last_stable_offset
    end = min(standstill.high_watermark, start + _MOST_OFFSETS)
    fetch = RangeFetch(client, standstill.topic_partition, place, IsolationLevel.READ_UNCOMMITTED, _LIMITS)
    found: dict[tuple[str, int, int], set[TopicPartition]] = {}
    try:
        for chunk in fetch.chunks(start, end):
            for position, header in chunk.batches:
                if header.is_control or not header.is_transactional or header.producer_id not in open_producers:
                    continue
                for record in read_records(chunk.data, position, header):
                    key = offset_key(record.key or b"")
                    if key is not None:
                        name = key[0], header.producer_id, header.producer_epoch
                        found.setdefault(name, set()).add(key[1])
    except (OffsetsGoneError, InvalidBatch):
        # The next look begins at the new last stable offset.
        pass
    return [
        WaitingGroup(group, standstill.topic_partition, producer_id, epoch, tuple(sorted(pending)))
        for name, pending in found.items()
        for group, producer_id, epoch in [name]
    ]


def offset_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Decode the key of a committed offset; return None for any other record of a group."""
    try:
        [version] = _INT16.unpack_from(key)
        if version not in _KEY_VERSIONS:
            return None
        group, at = _string(key, _INT16.size)
        topic, at = _string(key, at)
        [partition] = _INT32.unpack_from(key, at)
    except (struct.error, UnicodeDecodeError):
        return None
    return group, TopicPartition(topic, partition)


def _string(key: bytes, at: int) -> tuple[str, int]:
    [size] = _INT16.unpack_from(key, at)
    begin = at + _INT16.size
    return key[begin : begin + size].decode(), begin + size
