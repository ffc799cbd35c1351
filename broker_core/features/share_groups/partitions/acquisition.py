"""The acquisition of records by a member: which of the fetched records it gets, and for how long they are its own.

Batches are the unit of delivery where that is possible. A record that was delivered several times and not accepted is
delivered with fewer others each time, and the last time alone, so that one record cannot exhaust the deliveries of its
batch.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final, NamedTuple

from broker_core.features.share_groups.partitions.in_flight import InFlight, InFlightBatch, RecordState
from broker_core.features.share_groups.partitions.share_partition import SharePartition
from broker_core.records.batch import read_records
from broker_core.records.control import ControlType, control_type_of
from broker_core.records.header import BatchHeader, iter_headers
from broker_core.types import AbortedTransaction

RECORD_LIMIT: Final = 1
_FEWEST_DELIVERIES: Final = 2


class Acquired(NamedTuple):
    """A range of offsets that a member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1


class Fetched(NamedTuple):
    """Batches as read from the log, with the aborted transactions for a reader of committed data."""

    records: bytes
    headers: Sequence[tuple[int, BatchHeader]]
    aborted: Sequence[AbortedTransaction]

    @classmethod
    def of(cls, records: bytes, aborted: Sequence[AbortedTransaction] | None) -> "Fetched":
        return cls(records, list(iter_headers(records)), aborted or ())


class Limits(NamedTuple):
    """The limits of a request: records in total, records in one acquired range, and whether the total is strict."""

    max_records: int
    batch_size: int
    strict: bool


class Acquisition:
    """One acquisition of records of a share partition."""

    def __init__(
        self, partition: SharePartition, member_id: str, fetched: Fetched, limits: Limits, now_ms: int
    ) -> None:
        self._partition = partition
        self._member_id = member_id
        self._fetched = fetched
        self._headers = [header for _, header in fetched.headers]
        self._limits = limits
        settings = partition.settings()
        self._max_in_flight = settings.max_record_locks
        self._delivery_limit = settings.delivery_count_limit
        self._lock_until_ms = now_ms + settings.record_lock_duration_ms
        self._throttled_from = max(_FEWEST_DELIVERIES, ceil(self._delivery_limit / 2))
        self._acquired: list[Acquired] = []
        self._count = 0

    def run(self, fetch_offset: int) -> list[Acquired]:
        partition = self._partition
        if self._limits.max_records <= 0 or not self._headers:
            return []
        last_offset = self._headers[-1].last_offset
        if last_offset < partition.start_offset:
            return []
        most = min(self._limits.max_records, self._max_in_flight - partition.in_flight_count)
        if most <= 0:
            if fetch_offset > partition.end_offset:
                return []
            # The limit is reached, but these records are in flight already.
            most = min(self._limits.max_records, partition.end_offset - fetch_offset + 1)
            last_offset = min(last_offset, partition.end_offset)
        base_offset = self._headers[0].base_offset
        self._archive_removed(fetch_offset, base_offset)
        floor = partition.batches.at_or_before(base_offset)
        if floor is None:
            base_offset = max(base_offset, partition.start_offset)
        elif floor.last_offset >= base_offset:
            base_offset = floor.first_offset
        low = min(self._headers[0].base_offset, base_offset)
        known = partition.batches.beginning_within(low, last_offset)
        if not known:
            self._acquire_new(base_offset, last_offset, most)
        else:
            most = self._acquire_known(known, last_offset, most)
            if self._count < most and known[-1].last_offset < last_offset:
                self._acquire_new(known[-1].last_offset + 1, last_offset, most - self._count)
        return self._without_aborted()

    def _archive_removed(self, fetch_offset: int, base_offset: int) -> None:
        """Archive available records before the first fetched batch: the log does not have them any more."""
        if len(self._partition.batches) and fetch_offset < base_offset:
            self._partition.archive(fetch_offset, base_offset - 1, RecordState.AVAILABLE)
            self._partition.may_have_available = True

    def _acquire_known(self, known: Iterable[InFlightBatch], last_offset: int, most: int) -> int:
        """Acquire available records of batches in flight; return the limit that is left for further records."""
        first_fetched = self._headers[0].base_offset
        for batch in known:
            if self._count >= most:
                break
            if batch.offsets is None and batch.whole.state is not RecordState.AVAILABLE:
                continue
            if batch.offsets is None and not batch.whole.delivery_count:
                self._acquire_never_delivered(batch, last_offset, most - self._count)
                continue
            remaining = most - self._count
            is_throttled = self._is_throttled(batch, first_fetched, last_offset)
            if is_throttled and self._count:
                return 0
            is_whole = batch.offsets is None and batch.is_within(first_fetched, last_offset)
            if is_whole and not is_throttled and not (self._limits.strict and batch.size > remaining):
                batch.whole.acquire(self._member_id, self._lock_until_ms)
                self._add(Acquired(batch.first_offset, batch.last_offset, batch.whole.delivery_count))
                continue
            count = self._acquire_single(batch, first_fetched, last_offset, remaining)
            if is_throttled and count:
                return 0
        return most

    def _add(self, acquired: Acquired) -> None:
        self._acquired.append(acquired)
        self._count += acquired.size

    def _is_throttled(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> bool:
        """Return whether a record was delivered so often that its batch is delivered in smaller parts."""
        counts = (
            each.delivery_count
            for first, _, each in batch.parts()
            if each.state is RecordState.AVAILABLE and (batch.offsets is None or first_offset <= first <= last_offset)
        )
        return max(counts, default=0) >= self._throttled_from

    def _acquire_single(self, batch: InFlightBatch, first_offset: int, last_offset: int, remaining: int) -> int:
        found: list[Acquired] = []
        throttled_most: int | None = None
        offsets = batch.split()
        for offset, each in offsets.items():
            if not first_offset <= offset <= last_offset or each.state is not RecordState.AVAILABLE:
                continue
            is_last_delivery = (
                self._delivery_limit > _FEWEST_DELIVERIES and each.delivery_count == self._delivery_limit - 1
            )
            if is_last_delivery and found:
                break
            if each.delivery_count >= self._throttled_from and throttled_most is None:
                throttled_most = max(1, len(offsets) >> (each.delivery_count - self._throttled_from + 1))
            each.acquire(self._member_id, self._lock_until_ms)
            found.append(Acquired(offset, offset, each.delivery_count))
            is_enough = self._limits.strict and len(found) == remaining
            if is_last_delivery or is_enough or len(found) == throttled_most:
                break
        for acquired in _joined(found):
            self._add(acquired)
        return len(found)

    def _acquire_never_delivered(self, batch: InFlightBatch, last_offset: int, most: int) -> None:
        """Acquire records between persisted batches as new ones; records that are not fetched yet stay available."""
        first, end = batch.first_offset, min(batch.last_offset, last_offset)
        last_acquired = self._acquire_range(first, end, most, batch.last_offset)
        if last_acquired < batch.last_offset:
            rest = InFlightBatch(last_acquired + 1, batch.last_offset, InFlight(RecordState.AVAILABLE, 0))
            self._partition.batches.add(rest)

    def _acquire_new(self, first_offset: int, last_offset: int, most: int) -> None:
        partition = self._partition
        if not len(partition.batches):
            first_offset = max(first_offset, partition.end_offset)
        last_acquired = self._acquire_range(first_offset, last_offset, most, None)
        if partition.batches.first_offset == first_offset:
            partition.start_offset = first_offset
        partition.end_offset = max(partition.end_offset, last_acquired)

    def _acquire_range(self, first_offset: int, last_offset: int, most: int, end: int | None) -> int:
        """Acquire a range that has no batches; return its last offset, where a fetched batch ends if possible.

        The range ends at `end` at the latest.
        """
        if most < last_offset - first_offset + 1:
            last_offset = self._end_of_batch(first_offset + most - 1)
            if end is not None:
                last_offset = min(last_offset, end)
        size = last_offset - first_offset + 1
        if self._limits.strict and size > most:
            # Only as many as asked for; the others are available.
            batch = self._acquired_batch(first_offset, last_offset)
            batch.split_at(first_offset + most - 1)
            self._partition.batches.add(batch)
            self._partition.may_have_available = True
            self._add(Acquired(first_offset, first_offset + most - 1, 1))
            return last_offset
        for first, last in self._ranges(first_offset, last_offset):
            self._partition.batches.add(self._acquired_batch(first, last))
            self._add(Acquired(first, last, 1))
        return last_offset

    def _acquired_batch(self, first_offset: int, last_offset: int) -> InFlightBatch:
        state = InFlight(RecordState.ACQUIRED, 1, self._member_id, self._lock_until_ms)
        return InFlightBatch(first_offset, last_offset, state)

    def _ranges(self, first_offset: int, last_offset: int) -> Iterable[tuple[int, int]]:
        """Divide a range where a fetched batch begins, into parts of at least the size that the request wishes."""
        size = self._limits.batch_size
        if not self._limits.strict and last_offset - first_offset + 1 > size:
            for header in self._headers:
                if header.base_offset > last_offset:
                    break
                if header.base_offset - first_offset >= size:
                    yield first_offset, header.base_offset - 1
                    first_offset = header.base_offset
        yield first_offset, last_offset

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the fetched batch with an offset; the offset itself if there is none."""
        previous: BatchHeader | None = None
        for header in self._headers:
            if offset < header.base_offset:
                break
            previous = header
        return previous.last_offset if previous is not None and offset <= previous.last_offset else offset

    def _without_aborted(self) -> list[Acquired]:
        """Archive acquired records of aborted transactions, and return the others."""
        acquired = self._acquired
        for first, last in aborted_ranges(self._fetched):
            self._partition.archive(first, last, RecordState.ACQUIRED)
            acquired = [part for each in acquired for part in _cut(each, first, last)]
        if acquired != self._acquired:
            self._partition.move_start()
        return acquired


def aborted_ranges(fetched: Fetched) -> list[tuple[int, int]]:
    waiting = sorted(fetched.aborted, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    found = []
    for position, header in fetched.headers:
        if not waiting and not aborted:
            break
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        if header.is_control:
            records = read_records(fetched.records, position, header)
            if records and control_type_of(records[0].key) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborted:
            found.append((header.base_offset, header.last_offset))
    return found


def acquired_bytes(fetched: Fetched, acquired: Sequence[Acquired]) -> bytes:
    """Return the fetched batches from the first to the last acquired record."""
    if not acquired:
        return b""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    kept = [
        (position, header)
        for position, header in fetched.headers
        if header.last_offset >= first and header.base_offset <= last
    ]
    if not kept:
        return b""
    start, end = kept[0][0], kept[-1][0] + kept[-1][1].size_bytes
    return fetched.records[start:end]


def _joined(acquired: Iterable[Acquired]) -> list[Acquired]:
    """Join ranges that follow each other and were delivered equally often."""
    joined: list[Acquired] = []
    for each in acquired:
        last = joined[-1] if joined else None
        if last is not None and last.last_offset + 1 == each.first_offset and last[2] == each[2]:
            joined[-1] = last._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined


def _cut(acquired: Acquired, first_offset: int, last_offset: int) -> Iterable[Acquired]:
    if last_offset < acquired.first_offset or first_offset > acquired.last_offset:
        yield acquired
        return
    if acquired.first_offset < first_offset:
        yield acquired._replace(last_offset=first_offset - 1)
    if acquired.last_offset > last_offset:
        yield acquired._replace(first_offset=last_offset + 1)
