"""A segment's aborted transactions in Kafka's 34-byte entries (rules C.8).

An entry is in the segment of the abort marker, whichever segment the transaction began in. The last stable
offset in it lets a reader stop: transactions decided later began at or after that offset.
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
    """One aborted transaction: its data's first offset, its marker's offset, and the LSO after that."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def pack(self) -> bytes:
        """Return the entry as it stands in the file."""
        return _ENTRY.pack(_VERSION, *self)


def unpack_entries(data: bytes) -> list[AbortedEntry]:
    """Read the whole entries in `data`; `DamageError` when one is of an unknown version."""
    entries = []
    for version, *numbers in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
        if version != _VERSION:
            raise DamageError(f"aborted transaction entry of version {version}; only {_VERSION} is known")
        entries.append(AbortedEntry(*numbers))
    return entries


class TransactionIndex:
    """One segment's entries, in memory and in a file that is created with the first of them."""

    def __init__(self, storage: Storage, path: str, base_offset: int) -> None:
        self._storage = storage
        self._path = path
        self._base_offset = base_offset
        self._entries: list[AbortedEntry] = []
        self._written = 0
        self._file: File | None = None

    @property
    def entries(self) -> list[AbortedEntry]:
        """Return all entries, in the order of their markers."""
        return self._entries

    def load(self) -> None:
        """Read the file if there is one; `DamageError` when it cannot be this segment's index."""
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
        """Add the newest abort; its marker is behind all others."""
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
        """Forget all entries, damaged ones too."""
        self._entries = []
        self._written = 0
        if self._storage.exists(self._path):
            self._open().truncate(0)

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions that touch [start, upper), and whether later segments cannot hold more of them."""
        found = []
        for entry in self._entries[bisect_left(self._entries, start, key=attrgetter("last_offset")) :]:
            if entry.first_offset < upper:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found, True
        return found, False

    def flush(self) -> None:
        """Write the entries that are only in memory."""
        if self._written < len(self._entries):
            self._open().append(b"".join(entry.pack() for entry in self._entries[self._written :]))
            self._written = len(self._entries)

    def sync(self) -> None:
        """Write all entries and make them durable; no file appears for a segment without aborts."""
        self.flush()
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()

    def delete(self) -> None:
        """Remove the file."""
        self.close()
        self._storage.delete(self._path)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self._path)
        return self._file


def collect_aborted(indexes: Iterable[TransactionIndex], start: int, upper: int) -> list[AbortedTransaction]:
    """Return the aborted transactions a reader of [start, upper) must know, ordered by first offset.

    `indexes` begin with the segment that holds `start`. Kafka answers in marker order; kafkajs does not sort what it
    gets, so we do (rules D.2).
    """
    return sorted(_walk(indexes, start, upper), key=attrgetter("first_offset"))


def _walk(indexes: Iterable[TransactionIndex], start: int, upper: int) -> Iterator[AbortedTransaction]:
    for index in indexes:
        found, complete = index.collect(start, upper)
        yield from found
        if complete:
            return
