"""The search for the records of a few keys in a partition's log, and for the outcomes of their transactions.

The log is read uncommitted, up to its end, and its markers show what was committed: compaction removes no marker while
a record of its transaction is left. So open transactions of other producers, behind which committed readers see
nothing, do not block the search.

If a batch has one record, as those of decisions do, only its key is decoded: many queries share a decision topic, and
most of its records belong to others.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from broker_core.records.batch import read_records
from broker_core.records.compression import Compression
from broker_core.records.control import ControlType, parse_end_txn_marker
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.records.varint import read_varint
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.client.fetch import FetchedChunk
from spark_eos.sink.protocol.answers import KeyedRecord, UnendedRecord

# A record's fields before its key, and the key of a decision: prefixes have up to 200 bytes, names may be long.
_HEAD_BYTES: Final = 1024
_GZIP_WINDOW: Final = 31


class KeySearch:
    """The search of one partition, chunk by chunk in the order of offsets."""

    def __init__(self, topic_partition: TopicPartition, is_wanted: Callable[[bytes, int], bool]) -> None:
        self._topic_partition = topic_partition
        self._is_wanted = is_wanted
        self._committed: list[KeyedRecord] = []
        self._open: dict[int, list[UnendedRecord]] = {}

    def take(self, chunk: FetchedChunk) -> None:
        for position, header in chunk.batches:
            if header.record_count == 0:
                continue
            if header.is_control:
                self._end(chunk.data, position, header)
                continue
            records = list(self._wanted(chunk.data, position, header))
            if not header.is_transactional:
                self._committed += records
            elif records:
                identity = ProducerIdentity(header.producer_id, header.producer_epoch)
                self._open.setdefault(header.producer_id, []).extend(
                    UnendedRecord(self._topic_partition, record, identity) for record in records
                )

    def committed(self) -> list[KeyedRecord]:
        return sorted(self._committed, key=lambda record: record.offset)

    def unended(self) -> list[UnendedRecord]:
        return [each for records in self._open.values() for each in records]

    def _end(self, data: bytes | memoryview, position: int, header: BatchHeader) -> None:
        if header.producer_id not in self._open:
            return
        marker = parse_end_txn_marker(data, position, header)
        if marker is not None:
            ended = self._open.pop(header.producer_id)
            if marker.control_type is ControlType.COMMIT:
                self._committed += [each.record for each in ended]

    def _wanted(self, data: bytes | memoryview, position: int, header: BatchHeader) -> Iterator[KeyedRecord]:
        if header.record_count == 1:
            key = _only_key(data, position, header)
            if key is not None and not self._is_wanted(key, header.max_timestamp):
                return
        for record in read_records(data, position, header):
            if record.key is not None and self._is_wanted(record.key, record.timestamp_ms):
                yield KeyedRecord(record.offset, record.key, record.value)


def _only_key(data: bytes | memoryview, position: int, header: BatchHeader) -> bytes | None:
    """Return the key of a batch's only record, or None if that needs the whole record decoded."""
    section = memoryview(data)[position + HEADER_SIZE : position + header.size_bytes]
    try:
        if header.compression is Compression.GZIP:
            head = zlib.decompressobj(_GZIP_WINDOW).decompress(section, _HEAD_BYTES)
        elif header.compression is Compression.NONE:
            head = bytes(section[:_HEAD_BYTES])
        else:
            return None
        _, at = read_varint(head, 0)
        _, at = read_varint(head, at + 1)
        _, at = read_varint(head, at)
        size, at = read_varint(head, at)
    except (IndexError, ValueError, zlib.error):
        return None
    return head[at : at + size] if 0 <= size <= len(head) - at else None
