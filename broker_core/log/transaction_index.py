"""The index of a segment's aborted transactions, in Kafka's 34-byte entries (rules C.8).

An entry belongs to the segment that contains the abort marker; the transaction may begin in an earlier segment. Each
entry contains the last stable offset after the abort. Transactions that end later begin at or after that offset, so a
search can stop at an entry whose last stable offset is beyond the range.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from broker_core.errors import DamageError
from broker_core.ports import File, Storage
from broker_core.types import AbortedTransaction

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
    for version, *numbers in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
        if version != _VERSION:
            raise DamageError(f"aborted transaction entry of version {version}; only {_VERSION} is known")
        entries.append(AbortedEntry(*numbers))
    return entries


class TransactionIndex:
    """The entries of one segment, in memory and in a file that is created with the first entry."""

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        self._storage = storage
        self._path = path
        self._base_offset = base_offset
        self._entries: list[AbortedEntry] = []
        self._written = 0
        self._file: File | None = None

    @property
    def entries(self) -> list[AbortedEntry]:
        return self._entries

    def load(self) -> None:
        """Read the file if it exists; raise `DamageError` if its entries are not a valid index of this segment."""
        if not self._storage.exists(self._path):
            return
        file = self._open()
        data = file.read(0, file.size())
        self._entries = unpack_entries(data)
        self._written = len(self._entries)
        previous = self._base_offset - 1
        for entry in self._entries:
            if entry.last_offset <= previous:
                raise DamageError(f"{self._path}: marker offset {entry.last_offset} follows {previous}")
            previous = entry.last_offset
        if len(data) % ENTRY_SIZE:
            file.truncate(self._written * ENTRY_SIZE)

    def append(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction; its marker's offset must be above those of all other entries."""
        if self._entries and entry.last_offset <= self._entries[-1].last_offset:
            raise AssertionError(f"{self._path}: {entry} does not follow {self._entries[-1]}")
        self._entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after `offset`."""
        count = bisect_left(self._entries, offset, key=attrgetter("last_offset"))
        del self._entries[count:]
        if count < self._written:
            self._open().truncate(count * ENTRY_SIZE)
            self._written = count

    def reset(self) -> None:
        """Remove all entries, including damaged ones."""
        self._entries = []
        self._written = 0
        if self._storage.exists(self._path):
            self._open().truncate(0)

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap [start, upper), and whether later segments contain no others."""
        found = []
        for entry in self._entries[bisect_left(self._entries, start, key=attrgetter("last_offset")) :]:
            if entry.first_offset < upper:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found, True
        return found, False

    def flush(self) -> None:
        if self._written < len(self._entries):
            self._open().append(b"".join(entry.pack() for entry in self._entries[self._written :]))
            self._written = len(self._entries)

    def sync(self) -> None:
        """Write all entries and make them durable; no file is created if there are none."""
        self.flush()
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def delete(self) -> None:
        self.close()
        self._storage.delete(self._path)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self._path)
        return self._file


def collect_aborted(indexes: Iterable[TransactionIndex], start: int, upper: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [start, upper), sorted by first offset.

    `indexes` start with that of the segment that contains `start`. Kafka returns the transactions in the order of their
    markers. kafkajs expects them sorted by first offset, so this function sorts them (rules D.2).
    """
    return sorted(_walk(indexes, start, upper), key=attrgetter("first_offset"))


def _walk(indexes: Iterable[TransactionIndex], start: int, upper: int) -> Iterator[AbortedTransaction]:
    for index in indexes:
        found, complete = index.collect(start, upper)
        yield from found
        if complete:
            return
