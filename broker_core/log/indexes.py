"""The three indexes of a segment, in Kafka's formats: from offset and from time to batches, and aborted transactions.

The two sparse indexes can be rebuilt from the segment. Entries therefore stay in memory until the segment is rolled or
closed, and recovery rebuilds them after a crash. Kafka preallocates the files with zeros; zeros at the end are not
entries.

An entry of the transaction index belongs to the segment that contains the abort marker; the transaction may begin in an
earlier segment (rules C.8). Each entry contains the last stable offset after the abort. Transactions that end later
begin at or after that offset, so a search can stop at an entry whose last stable offset is beyond the range.
"""

import itertools
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from broker_core.errors import DamageError
from broker_core.ports import File, Storage, Syncs
from broker_core.types import NO_TIMESTAMP, AbortedTransaction, counted

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class _IndexFile:
    """The file of an index, opened when it is first used; the entries up to `_written` are in it."""

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        self._storage = storage
        self._path = path
        self._base_offset = base_offset
        self._file: File | None = None
        self._written = 0

    def file_exists(self) -> bool:
        return self._storage.exists(self._path)

    def delete(self) -> None:
        self.close()
        self._storage.delete(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self._path)
        return self._file

    def _cut(self, count: int, entry_bytes: int) -> None:
        if count < self._written:
            self._open().truncate(count * entry_bytes)
            self._written = count


class _SparseIndex(_IndexFile):
    """The base of both sparse indexes: two sorted columns, loaded from the file when first used."""

    _entry: struct.Struct

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        super().__init__(storage, path, base_offset)
        # Whether the entries are in memory.
        self.is_loaded = False
        self._firsts = array("q")
        self._seconds = array("q")

    def __len__(self) -> int:
        self._load()
        return len(self._firsts)

    @property
    def size_bytes(self) -> int:
        """Return the size of the file after all entries are written."""
        self._load()
        return len(self._firsts) * self._entry.size

    def flush(self) -> None:
        """Write new entries to the file; create it even if there are none."""
        self._load()
        file = self._open()
        if self._written < len(self._firsts):
            rows = zip(self._firsts[self._written :], self._seconds[self._written :], strict=True)
            file.append(b"".join(self._entry.pack(*row) for row in rows))
            self._written = len(self._firsts)

    def written(self) -> Syncs:
        """Write all entries, and return what makes them durable."""
        self.flush()
        return [self._open().sync]

    def reset(self) -> None:
        self.is_loaded = True
        self._firsts = array("q")
        self._seconds = array("q")
        self._written = 0
        if self.file_exists():
            self._open().truncate(0)

    def load(self) -> None:
        """Read the file; raise `DamageError` if its entries are not a valid index of this segment."""
        if not self.file_exists():
            self.is_loaded = True
            return
        file = self._open()
        data = file.read(0, file.size())
        size = self._entry.size
        # A file of one entry is not stripped: zeros are valid there, as offset 0 with timestamp 0.
        used = len(data.rstrip(b"\0")) if len(data) > size else len(data)
        used += -used % size
        values = list(self._entry.iter_unpack(data[: min(used, len(data) // size * size)]))
        self._firsts = array("q", [first for first, _ in values])
        self._seconds = array("q", [second for _, second in values])
        self.is_loaded = True
        self._written = len(values)
        for column in (self._firsts, self._seconds):
            if any(left > right for left, right in itertools.pairwise(column)):
                raise DamageError(f"{self._path}: entries do not ascend")
        if values and min(self._firsts[0], self._seconds[0]) < 0:
            raise DamageError(f"{self._path}: negative entry")
        if len(data) != self._written * size:
            # Remove preallocated zeros or a partial entry: the next append must follow the last entry directly.
            file.truncate(self._written * size)

    def peek_last(self) -> tuple[int, int] | None:
        """Return the last entry, with its absolute offset, without loading all; raise `DamageError` if invalid."""
        if not self.is_loaded:
            file, size = self._open(), self._entry.size
            count, rest = divmod(file.size(), size)
            if rest:
                raise DamageError(f"{self._path}: {counted(rest, 'byte')} after the last whole entry")
            last = self._entry.unpack(file.read((count - 1) * size, size)) if count else None
            if last is None or (any(last) and min(last) >= 0):
                return last and self._absolute(*last)
            # Preallocated zeros follow the last entry, so the whole file is needed to find it.
            self.load()
        return self._absolute(self._firsts[-1], self._seconds[-1]) if self._firsts else None

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        raise NotImplementedError

    def _load(self) -> None:
        if not self.is_loaded:
            self.load()

    def _add(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)

    def _keep(self, count: int) -> None:
        del self._firsts[count:]
        del self._seconds[count:]
        self._cut(count, self._entry.size)


class OffsetIndex(_SparseIndex):
    """The index from the last offset of a batch to its position, with about one entry per `index.interval.bytes`."""

    _entry = _OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        """Add the batch at `position`, whose last offset is `offset`."""
        self._load()
        self._add(offset - self._base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the position of the batch that contains `offset`, or of one before it."""
        self._load()
        found = bisect_right(self._firsts, offset - self._base_offset)
        return self._seconds[found - 1] if found else 0

    def positions_down_from(self, position: int) -> Iterator[int]:
        """Yield the indexed batch positions at or before `position` in descending order, then 0."""
        self._load()
        for at in range(bisect_right(self._seconds, position) - 1, -1, -1):
            yield self._seconds[at]
        yield 0

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        return first + self._base_offset, second

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        self._load()
        self._keep(bisect_left(self._firsts, offset - self._base_offset))

    def last_position(self) -> int:
        self._load()
        return self._seconds[-1] if self._seconds else 0


class TimeIndex(_SparseIndex):
    """The index from the largest timestamp so far to the last offset of its batch."""

    _entry = _TIME_ENTRY

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry for the batch that ends at `offset`, if `timestamp_ms` is above the last entry's."""
        self._load()
        if timestamp_ms > (self._firsts[-1] if self._firsts else NO_TIMESTAMP):
            self._add(timestamp_ms, offset - self._base_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """Return the offset from which to search for `timestamp_ms`; all earlier batches have smaller timestamps."""
        self._load()
        found = bisect_right(self._firsts, timestamp_ms)
        return self._base_offset + (self._seconds[found - 1] if found else 0)

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        return first, second + self._base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        self._load()
        self._keep(bisect_left(self._seconds, offset - self._base_offset))


_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
_VERSION: Final = 0


class AbortedEntry(NamedTuple):
    """One aborted transaction: the offsets of its first record and of its marker, and the LSO after the abort."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def pack(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)


def unpack_entries(data: bytes) -> list[AbortedEntry]:
    """Return the complete entries in `data`; raise `DamageError` if one has an unknown version."""
    entries = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
        if version != _VERSION:
            raise DamageError(f"aborted transaction entry of version {version}; only {_VERSION} is known")
        entries.append(AbortedEntry(producer_id, first, last, stable))
    return entries


class TransactionIndex(_IndexFile):
    """The entries of one segment, in memory and in a file that is created with the first entry."""

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        super().__init__(storage, path, base_offset)
        # In the order of their markers.
        self.entries: list[AbortedEntry] = []

    def load(self) -> None:
        """Read the file if it exists; raise `DamageError` if its entries are not a valid index of this segment."""
        if not self.file_exists():
            return
        file = self._open()
        data = file.read(0, file.size())
        self.entries = unpack_entries(data)
        self._written = len(self.entries)
        previous = self._base_offset - 1
        for entry in self.entries:
            if entry.last_offset <= previous:
                raise DamageError(f"{self._path}: marker offset {entry.last_offset} follows {previous}")
            previous = entry.last_offset
        if len(data) % ENTRY_SIZE:
            file.truncate(self._written * ENTRY_SIZE)

    def append(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction; its marker must be behind all other entries' markers."""
        if self.entries and entry.last_offset <= self.entries[-1].last_offset:
            raise AssertionError(f"{self._path}: {entry} does not follow {self.entries[-1]}")
        self.entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after `offset`."""
        count = bisect_left(self.entries, offset, key=attrgetter("last_offset"))
        del self.entries[count:]
        self._cut(count, ENTRY_SIZE)

    def reset(self) -> None:
        self.entries = []
        self._written = 0
        if self.file_exists():
            self._open().truncate(0)

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap [start, upper), and whether later segments contain no others."""
        found = []
        for entry in self.entries[bisect_left(self.entries, start, key=attrgetter("last_offset")) :]:
            if entry.first_offset < upper:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found, True
        return found, False

    def flush(self) -> None:
        if self._written < len(self.entries):
            self._open().append(b"".join(entry.pack() for entry in self.entries[self._written :]))
            self._written = len(self.entries)

    def written(self) -> Syncs:
        """Write all entries, and return what makes them durable; no file is created if there are none."""
        self.flush()
        return [] if self._file is None else [self._file.sync]


def collect_aborted(indexes: Iterable[TransactionIndex], start: int, upper: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [start, upper), sorted by first offset.

    `indexes` start with the index of the segment that contains `start`. Kafka returns the transactions in the order of
    their markers. kafkajs expects them sorted by first offset, so this function sorts them (rules D.2).
    """
    aborted: list[AbortedTransaction] = []
    for index in indexes:
        found, is_complete = index.collect(start, upper)
        aborted += found
        if is_complete:
            break
    return sorted(aborted, key=attrgetter("first_offset"))
