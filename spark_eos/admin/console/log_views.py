"""What pages read from logs: a partition's timeline, the markers of micro-batches, and the groups that wait."""

import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from broker_core.errors import InvalidBatch
from broker_core.records.batch import read_records
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.admin.console.decision_tail import MicroBatch, WrittenEnd
from spark_eos.admin.timeline import bounds_of
from spark_eos.admin.timeline_page import LogReading, Timeline, TransactionOutcome
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.errors import BrokerError
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.source import FetchLimits
from spark_eos.runtime import now_ms
from spark_eos.transactions.findings import NOT_JUDGED, HangingFinding, unknown_finding
from spark_eos.transactions.judge import open_transactions
from spark_eos.transactions.standstills import Standstill

DEFAULT_LAST_OFFSETS: Final = 10_000
MOST_LAST_OFFSETS: Final = 1_000_000


def _fetch(
    client: KafkaClient,
    topic_partition: TopicPartition,
    place: PartitionPlace,
    size_bytes: int,
    poll_timeout_ms: int = 5_000,
) -> RangeFetch:
    limits = FetchLimits(size_bytes, size_bytes, max_wait_ms=100, poll_timeout_ms=poll_timeout_ms)
    return RangeFetch(client, topic_partition, place, IsolationLevel.READ_UNCOMMITTED, limits)


# Timelines.

_MOST_READ_BYTES: Final = 64 << 20


class TimelineFollower:
    """The section of one partition's log that a page shows; used by one thread at a time.

    The first look reads the end of the log, later ones what is new.
    """

    def __init__(self, commands: OperatorCommands, topic_partition: TopicPartition, last: int) -> None:
        self.topic_partition, self.last = topic_partition, last
        self._commands = commands
        self._reading = LogReading()
        self._start: int | None = None
        self._position = 0

    def take(
        self, client: KafkaClient, owner: Callable[[int], str | None], judged: Iterable[HangingFinding] = ()
    ) -> Timeline:
        """Read what is new, and return the section up to the high watermark, with what the console has judged."""
        tp, reading, bounds = self.topic_partition, self._reading, bounds_of(client, self.topic_partition)
        if self._start is None or bounds.high_watermark < self._position:
            reading = self._reading = LogReading()
            self._start = self._position = max(bounds.log_start, bounds.high_watermark - self.last)
        try:
            self._read(_fetch(client, tp, bounds.place, 8 << 20, poll_timeout_ms=15_000), bounds.high_watermark)
        except OffsetsGoneError as gone:
            self._start = None
            raise BrokerError(
                f"Cannot read {tp} from offset {gone.position}: {gone.reason.value}",
                remedy="The next look begins again",
            ) from gone
        opened = open_transactions(ProducerScan(client), [tp])
        ended = reading.add_open(tp, opened, self._start)
        known = {each.transaction.name: each for each in judged}
        findings = {
            each.producer.producer_id: known.get(each.name) or unknown_finding(each, NOT_JUDGED) for each in opened
        }
        # What has ended before the section, which moves with the log, is dropped.
        start = self._start = max(self._start, bounds.high_watermark - self.last)
        reading.transactions[:] = [
            each for each in reading.transactions if each.marker_offset is None or each.marker_offset >= start
        ]
        reading.plain[:] = [each for each in reading.plain if each.last_offset >= start]
        transactions, at_ms = reading.transactions, now_ms(client.runtime.clock)
        owners = {bar.producer_id: name for bar in transactions if (name := owner(bar.producer_id))}
        findings |= ended
        return Timeline(tp, at_ms, self._commands, start, *bounds[1:], transactions, reading.plain, owners, findings)

    def unread(self, timeline: Timeline) -> int:
        return max(0, timeline.high_watermark - self._position)

    def _read(self, fetch: RangeFetch, end: int) -> None:
        """Read on, up to a limit: a page must not wait for gigabytes."""
        size_bytes = 0
        for chunk in fetch.chunks(self._position, end):
            self._reading.take(chunk)
            self._position = chunk.next_position
            size_bytes += len(chunk.data)
            if size_bytes > _MOST_READ_BYTES:
                return
        self._position = max(self._position, end)


# Markers. A decision says when it was made, and seldom when it was completed. The markers of its transactions have the
# time: a few are looked up, and kept.

_MOST_CHUNKS: Final = 4
_MOST_KEPT: Final = 5_000


class EndMarker(NamedTuple):
    """The end of one transaction in one partition."""

    at_ms: int
    is_commit: bool


_NOT_YET: Final = EndMarker(-1, False)


class MarkerSearch:
    """The markers that were found; a later search looks only for the others."""

    def __init__(self) -> None:
        # None: it is too far away, or deleted.
        self._found: dict[WrittenEnd, EndMarker | None] = {}

    def of(self, micro_batch: MicroBatch) -> list[EndMarker]:
        return [found for each in micro_batch.ends if (found := self._found.get(each)) is not None]

    def search(
        self,
        client: KafkaClient,
        places: Mapping[TopicPartition, PartitionPlace],
        ends: Mapping[TopicPartition, int | None],
        micro_batches: Iterable[MicroBatch],
        most: int,
    ) -> None:
        """Look for at most so many markers, of the first micro-batches first; `ends` are high watermarks."""
        missing = [end for each in micro_batches for end in each.ends if end not in self._found]
        for each in missing[:most]:
            place, end = places.get(each.topic_partition), ends.get(each.topic_partition)
            if place is None or end is None:
                continue
            try:
                marker = _find(client, each, place, end)
            except OffsetsGoneError:
                marker = None
            if marker is not _NOT_YET:
                self._found[each] = marker
        while len(self._found) > _MOST_KEPT:
            del self._found[next(iter(self._found))]


def _find(client: KafkaClient, end: WrittenEnd, place: PartitionPlace, high_watermark: int) -> EndMarker | None:
    """Return the marker, `_NOT_YET` if the log has none so far, or None if it is too far away."""
    reading = LogReading()
    fetch = _fetch(client, end.topic_partition, place, 256 << 10)
    for number, chunk in enumerate(fetch.chunks(end.last_offset, high_watermark)):
        reading.take(chunk)
        for bar in reading.transactions:
            if bar.producer_id == end.producer_id and bar.marker_timestamp_ms is not None:
                return EndMarker(bar.marker_timestamp_ms, bar.outcome is TransactionOutcome.COMMITTED)
        if number + 1 >= _MOST_CHUNKS:
            return None
    return _NOT_YET


# Groups. Offsets that a producer has sent in a transaction are records in `__consumer_offsets` that belong to it. Until
# its marker is written there, a consumer of the group that wants stable offsets gets UNSTABLE_OFFSET_COMMIT. So the
# groups are in the records between the last stable offset and the high watermark.

# How much of a partition is read: a group that commits often writes much after a transaction that hangs.
_MOST_OFFSETS: Final = 20_000
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class WaitingGroup(NamedTuple):
    """A group with pending offsets, whose transaction they are in, and which partition holds them."""

    group_id: str
    producer_id: int
    producer_epoch: int
    topic_partition: TopicPartition
    pending: tuple[TopicPartition, ...]


def waiting_groups(client: KafkaClient, standstill: Standstill, place: PartitionPlace) -> list[WaitingGroup]:
    """Read the groups with offsets in the open transactions of one partition of `__consumer_offsets`."""
    open_producers = {each.transaction.producer.producer_id for each in standstill.opened}
    start = standstill.last_stable_offset
    end = min(standstill.high_watermark, start + _MOST_OFFSETS)
    found: dict[tuple[str, int, int], set[TopicPartition]] = {}
    # The next look begins at the new last stable offset.
    with suppress(OffsetsGoneError, InvalidBatch):
        for chunk in _fetch(client, standstill.topic_partition, place, 1 << 20).chunks(start, end):
            for position, header in chunk.batches:
                if header.is_control or not header.is_transactional or header.producer_id not in open_producers:
                    continue
                for record in read_records(chunk.data, position, header):
                    if (key := offset_key(record.key or b"")) is not None:
                        name = key[0], header.producer_id, header.producer_epoch
                        found.setdefault(name, set()).add(key[1])
    return [WaitingGroup(*name, standstill.topic_partition, tuple(sorted(pending))) for name, pending in found.items()]


def offset_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Decode the key of a committed offset; return None for any other record of a group."""
    try:
        [version] = _INT16.unpack_from(key)
        if version not in (0, 1):
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
