"""The two sparse indexes of a segment, in Kafka's file format: from offset and from time to batches.

An index can be rebuilt from its segment. Entries therefore stay in memory until the segment is rolled or closed, and
recovery rebuilds them after a crash. Kafka preallocates the files with zeros; zeros at the end are not entries.
"""

import itertools
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from broker_core.errors import DamageError
from broker_core.ports import File, Storage
from broker_core.types import NO_TIMESTAMP, counted

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class _SparseIndex:
    """The base of both indexes: two sorted columns, loaded from the file when first used."""

    _entry: struct.Struct

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        self._storage = storage
        self._path = path
        self._base_offset = base_offset
        self._file: File | None = None
        # Whether the entries are in memory.
        self.is_loaded = False
        self._written = 0
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

    def file_exists(self) -> bool:
        return self._storage.exists(self._path)

    def flush(self) -> None:
        """Write new entries to the file; create it even if there are none."""
        self._load()
        file = self._open()
        if self._written < len(self._firsts):
            rows = zip(self._firsts[self._written :], self._seconds[self._written :], strict=True)
            file.append(b"".join(self._entry.pack(*row) for row in rows))
            self._written = len(self._firsts)

    def sync(self) -> None:
        self.flush()
        self._open().sync()

    def reset(self) -> None:
        """Remove all entries, including damaged ones."""
        self.is_loaded = True
        self._firsts = array("q")
        self._seconds = array("q")
        self._written = 0
        if self.file_exists():
            self._open().truncate(0)

    def delete(self) -> None:
        self.close()
        self._storage.delete(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

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

    def entries(self) -> list[tuple[int, int]]:
        self._load()
        return [self._absolute(*row) for row in zip(self._firsts, self._seconds, strict=True)]

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        raise NotImplementedError

    def _load(self) -> None:
        if not self.is_loaded:
            self.load()

    def _open(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self._path)
        return self._file

    def _add(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)

    def _keep(self, count: int) -> None:
        del self._firsts[count:]
        del self._seconds[count:]
        if count < self._written:
            self._open().truncate(count * self._entry.size)
            self._written = count


class OffsetIndex(_SparseIndex):
    """The index from the last offset of a batch to its position, with about one entry per `index.interval.bytes`."""

    _entry = _OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        """Add the batch at `position`, whose last offset is `offset`."""
        self._load()
        self._add(offset - self._base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the position of a batch at or before the one that contains `offset`."""
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
        """Return the position in the last entry, 0 if there is none."""
        self._load()
        return self._seconds[-1] if self._seconds else 0


class TimeIndex(_SparseIndex):
    """The index from the largest timestamp so far to the last offset of its batch."""

    _entry = _TIME_ENTRY

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry for the batch that ends at `offset`, if `timestamp_ms` is above that of the last entry."""
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
