"""One segment of a log: a file of batches and its three indexes."""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.indexes import OffsetIndex, TimeIndex, TransactionIndex
from broker_core.ports import File, Storage, Syncs
from broker_core.records.header import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, iter_headers
from broker_core.types import NO_TIMESTAMP

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# Base offset and batch length, and the position of the last offset delta: enough to iterate over batches.
_STEP: Final = struct.Struct(">qi")
_DELTA: Final = struct.Struct(">i")
_DELTA_POSITION: Final = 23
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
_WALK_BYTES: Final = 8192
_SCAN_BYTES: Final = 1 << 20
# Index entries contain offsets relative to the base offset, in 31 bits.
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_BOOKMARKS: Final = 256
_TIME_ENTRY_BYTES: Final = 12
_REBUILD_INTERVAL_BYTES: Final = 4096


def indexed_timestamp(header: BatchHeader) -> int:
    """Return the batch's timestamp for the time index, -1 for a batch without records, as compaction leaves them."""
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def largest_unfilled_bytes(max_index_bytes: int) -> int:
    """Return a size up to which no segment has a full index, even with an entry for each batch."""
    return (max_index_bytes // _TIME_ENTRY_BYTES - 2) * HEADER_SIZE - 1


class Segment:
    """A file of batches with its indexes; supports appends, look-ups by offset or time, and truncation.

    Positions are in bytes, from the start of the log file. Methods expect offsets below the log end offset.
    `work_suffix` is appended to the file names of a segment that is not complete yet.
    """

    def __init__(self, storage: Storage, folder: str, base_offset: int, work_suffix: str = "") -> None:
        self.base_offset = base_offset
        self._work_suffix = work_suffix
        self._storage = storage
        self._path = f"{folder}/{base_offset:020d}"
        # The file of the batches; a log syncs it together with others.
        self.file: File = storage.open(self._path + LOG_SUFFIX + work_suffix)
        self.size_bytes = self.file.size()
        self._has_debris = False
        self.offset_index = OffsetIndex(storage, self._path + INDEX_SUFFIX + work_suffix, base_offset)
        self.time_index = TimeIndex(storage, self._path + TIME_INDEX_SUFFIX + work_suffix, base_offset)
        self.transaction_index = TransactionIndex(
            storage, self._path + TRANSACTION_INDEX_SUFFIX + work_suffix, base_offset
        )
        self._bytes_since_entry = 0
        self._largest: tuple[int, int] | None = None
        self._rolling_since_ms: int | None = None
        # Consumers continue where their last fetch ended. A known position saves the scan from the nearest index entry.
        self._bookmarks: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size_bytes} bytes)"

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp (-1 if there is none) and the last offset of the first batch with it."""
        if self._largest is None:
            self._largest = self.time_index.peek_last() or (NO_TIMESTAMP, self.base_offset)
        return self._largest

    @property
    def rolling_since_ms(self) -> int:
        """Return the timestamp of the first batch, from which the segment's age counts; -1 if there is none."""
        if self._rolling_since_ms is None and self.size_bytes >= HEADER_SIZE:
            head = self.file.read(_MAX_TIMESTAMP_POSITION, _MAX_TIMESTAMP.size)
            self._rolling_since_ms = int(_MAX_TIMESTAMP.unpack(head)[0])
        return NO_TIMESTAMP if self._rolling_since_ms is None else self._rolling_since_ms

    def append(
        self, data: bytes | bytearray | memoryview, last_offset: int, max_timestamp_ms: int, interval_bytes: int
    ) -> None:
        """Append one batch; if writing fails, raise `OSError` and keep the size of the segment unchanged."""
        position, size_bytes = self.size_bytes, len(data)
        if self._has_debris:
            self.file.truncate(position)
            self._has_debris = False
        try:
            self.file.append(data)
        except OSError:
            # A part of the batch may be in the file. Truncating now may fail too, so the next append does it.
            self._has_debris = True
            raise
        self.size_bytes = position + size_bytes
        self.note_batch(position, size_bytes, last_offset, max_timestamp_ms, interval_bytes)

    def note_batch(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int, interval_bytes: int
    ) -> None:
        """Update the indexes for the batch at `position`; entries are more than `interval_bytes` apart."""
        largest = self._largest or self.largest_timestamp
        if max_timestamp_ms > largest[0]:
            self._largest = largest = (max_timestamp_ms, last_offset)
        if self._bytes_since_entry > interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        return self.file.read(position, size_bytes)

    def read_batch(self, position: int) -> bytes:
        _, length = _STEP.unpack(self.file.read(position, _STEP.size))
        return self.file.read(position, self._checked(length, position) + LENGTH_OVERHEAD)

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch whose last offset is at least `offset`; the file's size if none is."""
        found = self._bookmarks.get(offset)
        if found is None:
            self._repair_indexes()
            found = self._walk_to(offset, self.offset_index.lookup(offset))
            self.remember(offset, found)
        return found

    def position_for_time(self, timestamp_ms: int) -> int:
        """Return the position from which to search for `timestamp_ms`; all earlier batches have smaller timestamps."""
        self._repair_indexes()
        return self.position_of(max(self.time_index.lookup(timestamp_ms), self.base_offset))

    def _repair_indexes(self) -> None:
        """Load the indexes if they are not in memory, and rebuild them if they are damaged.

        Recovery checks only the last entries of closed segments, because reading all would make opening a log slow.
        """
        if not (self.offset_index.is_loaded and self.time_index.is_loaded) and not self.indexes_fit(whole=True):
            self.rebuild_indexes(_REBUILD_INTERVAL_BYTES)

    def remember(self, offset: int, position: int) -> None:
        """Save the position at which a read from `offset` begins."""
        if len(self._bookmarks) >= _MAX_BOOKMARKS:
            self._bookmarks.clear()
        self._bookmarks[offset] = position

    def _walk_to(self, offset: int, position: int) -> int:
        while position < self.size_bytes:
            window = self.file.read(position, _WALK_BYTES)
            at = 0
            while at + _DELTA_POSITION + _DELTA.size <= len(window):
                base_offset, length = _STEP.unpack_from(window, at)
                if base_offset + _DELTA.unpack_from(window, at + _DELTA_POSITION)[0] >= offset:
                    return position + at
                at += self._checked(length, position + at) + LENGTH_OVERHEAD
            if at == 0:
                break
            position += at
        return self.size_bytes

    def _checked(self, length: int, position: int) -> int:
        """Return `length` if it is valid, else raise `InvalidBatch`: the next batch cannot be located."""
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise InvalidBatch(f"{self._path}{LOG_SUFFIX}: batch length {length} at byte {position}")
        return length

    def whole_batches(self, start: int, data: bytes) -> tuple[int, int]:
        """Return the size of the whole batches in `data`, which was read at `start`, and the offset after the last one.

        Return (0, -1) if the first batch is incomplete. The scan starts at an index entry near the end of `data`.
        """
        for known in self.offset_index.positions_down_from(start + len(data)):
            at = max(known - start, 0)
            last = -1
            while at + LENGTH_OVERHEAD <= len(data):
                end = at + self._checked(_STEP.unpack_from(data, at)[1], start + at) + LENGTH_OVERHEAD
                if end > len(data):
                    break
                last, at = at, end
            if last >= 0:
                base_offset, _ = _STEP.unpack_from(data, last)
                return at, base_offset + _DELTA.unpack_from(data, last + _DELTA_POSITION)[0] + 1
            if known <= start:
                break
        return 0, -1

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Yield (position, header, buffer, position in the buffer) of each whole batch from `position` to `end`.

        A truncated batch ends the iteration. Raises `InvalidBatch` for an invalid batch, and for an offset that cannot
        be in this segment: the CRC does not cover the base offset, so it may be corrupt although the CRC matches.
        """
        wanted = _SCAN_BYTES
        least, most = self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET
        end = self.size_bytes if end is None else end
        while position < end:
            window = self.file.read(position, min(wanted, end - position))
            at = 0
            for at, header in iter_headers(window):
                if not least <= header.base_offset <= header.last_offset <= most:
                    raise InvalidBatch(f"{self!r}: offset {header.base_offset} at byte {position + at}")
                least = header.next_offset
                yield position + at, header, window, at
                at += header.size_bytes
            if at == 0:
                if wanted >= end - position:
                    return
                # The batch is larger than the window.
                wanted *= 8
                continue
            wanted = _SCAN_BYTES
            position += at

    def truncate_to_position(self, position: int, offset: int) -> None:
        """Truncate log file and indexes at `position`, where the batch that contains `offset` begins."""
        self.file.truncate(position)
        self.size_bytes = position
        self.cut_indexes(position, offset)

    def cut_indexes(self, position: int, offset: int) -> None:
        """Truncate the indexes to the batches below `offset`, which end at `position`."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._bookmarks.clear()
        self._rolling_since_ms = None
        self._largest = largest = self.time_index.peek_last() or (NO_TIMESTAMP, self.base_offset)
        last_entry = self.offset_index.last_position()
        self._bytes_since_entry = position - last_entry
        for _, header, _, _ in self.headers(last_entry, position):
            if indexed_timestamp(header) > largest[0]:
                self._largest = largest = (header.max_timestamp, header.last_offset)

    def reset_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._bookmarks.clear()

    def rebuild_indexes(self, interval_bytes: int) -> None:
        self.reset_indexes()
        self._largest = (NO_TIMESTAMP, self.base_offset)
        self._bytes_since_entry = 0
        try:
            for position, header, _, _ in self.headers():
                self.note_batch(
                    position, header.size_bytes, header.last_offset, indexed_timestamp(header), interval_bytes
                )
        except InvalidBatch:
            # The indexes cover the batches before the damage. A scan that continues beyond them finds it again.
            return

    def indexes_fit(self, *, whole: bool) -> bool:
        """Return whether both indexes match the log file; check all entries if `whole`, else only the last ones."""
        try:
            if whole:
                self.offset_index.load()
                self.time_index.load()
            last = self.offset_index.peek_last()
            if last is not None and self._header_at(last[1]).last_offset != last[0]:
                return False
            last_time = self.time_index.peek_last()
            if last_time is None:
                # A closed segment has an entry, unless its batches have no timestamps.
                return self.size_bytes == 0 or indexed_timestamp(self._header_at(0)) < 0
            timestamp_ms, offset = last_time
            if whole:
                known = self.offset_index.lookup(offset)
            elif last is not None and last[0] <= offset:
                known = last[1]
            elif offset == self.base_offset:
                # A file of zeros looks like an entry for the base offset; comparing it with the first batch is cheap.
                known = 0
            else:
                return True
            header = self._header_at(self._walk_to(offset, known))
            return header.base_offset <= offset and header.max_timestamp == timestamp_ms
        except (DamageError, InvalidBatch):
            return False

    def lacks_entries(self, interval_bytes: int) -> bool:
        """Return whether the offset index is empty although a batch begins beyond `interval_bytes`."""
        if self.offset_index.peek_last() is not None:
            return False
        position = 0
        with suppress(InvalidBatch):
            while position <= interval_bytes and position + HEADER_SIZE <= self.size_bytes:
                position += self._header_at(position).size_bytes
        return interval_bytes < position < self.size_bytes

    def _header_at(self, position: int) -> BatchHeader:
        return BatchHeader.parse(self.file.read(position, HEADER_SIZE))

    def is_index_full(self, max_index_bytes: int) -> bool:
        """Return whether an index is full; one time entry is reserved for closing the segment."""
        return (
            self.offset_index.size_bytes >= max_index_bytes // 8 * 8
            or self.time_index.size_bytes // _TIME_ENTRY_BYTES + 1 >= max_index_bytes // _TIME_ENTRY_BYTES
        )

    def sync(self) -> None:
        """Make the batches durable; the indexes can be rebuilt from them."""
        self.file.sync()

    def finished(self) -> Syncs:
        """Return what makes all four files durable, with the segment's largest timestamp as the last time entry."""
        return [self.file.sync, *self.written_indexes()]

    def written_indexes(self) -> Syncs:
        """Write the three indexes, with the segment's largest timestamp as the last time entry."""
        self.time_index.append(*self.largest_timestamp)
        return [*self.offset_index.written(), *self.time_index.written(), *self.transaction_index.written()]

    def close(self) -> None:
        self.file.close()
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.close()

    def delete(self) -> None:
        """Delete the files, the log first: after a crash, recovery deletes indexes that have no log."""
        self.file.close()
        self._storage.delete(self._path + LOG_SUFFIX + self._work_suffix)
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.delete()


class SegmentList:
    """The segments of a log, ordered by base offset; the last one is the active segment."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that contains `offset`, 0 for offsets below the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        for at in range(self.index_of(offset), len(self._segments)):
            yield self._segments[at]

    def end_of(self, at: int, log_end_offset: int) -> int:
        return self._bases[at + 1] if at + 1 < len(self._bases) else log_end_offset

    def batch_base(self, offset: int) -> int:
        """Return the base offset of the batch that contains `offset`, or of the next one; `offset` if there is none."""
        for segment in self.from_offset(offset):
            for _, header, _, _ in segment.headers(segment.position_of(offset)):
                return header.base_offset
        return offset

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, group: Sequence[Segment], replacement: Segment) -> None:
        """Replace consecutive segments with one that has the base offset of the first."""
        at = self._segments.index(group[0])
        self._segments[at : at + len(group)] = [replacement]
        self._bases[at : at + len(group)] = [replacement.base_offset]

    def drop_first(self) -> Segment:
        del self._bases[0]
        return self._segments.pop(0)

    def drop_last(self) -> Segment:
        del self._bases[-1]
        return self._segments.pop()
