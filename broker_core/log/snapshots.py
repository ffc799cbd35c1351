"""Producer state in Kafka's `.snapshot` files, so that recovery replays a tail and not the whole log (rules C.9).

A snapshot is written only after everything below its offset is durable.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import crc32c

from broker_core.errors import DamageError
from broker_core.log.producer_entry import NO_OFFSET, BatchMetadata, ProducerStateEntry
from broker_core.ports import Storage, Syncs
from broker_core.types import NO_SEQUENCE

_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_VERSION: Final = 1
_CHECKED_FROM: Final = 6
SNAPSHOT_SUFFIX: Final = ".snapshot"


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    body = bytearray()
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, 0)
        first_offset = NO_OFFSET if entry.current_txn_first_offset is None else entry.current_txn_first_offset
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            newest.last_sequence,
            newest.last_offset,
            newest.offset_delta,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            first_offset,
        )
    count = len(body) // _ENTRY.size
    crc = crc32c.crc32c(count.to_bytes(4, "big") + body)
    return _HEAD.pack(_VERSION, crc, count) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Read the file's bytes; `DamageError` on a wrong version, checksum or length."""
    if len(data) < _HEAD.size:
        raise DamageError(f"producer snapshot of {len(data)} bytes is too short")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise DamageError(f"producer snapshot of version {version}; only {_VERSION} is known")
    if crc32c.crc32c(data[_CHECKED_FROM:]) != crc:
        raise DamageError("producer snapshot fails its checksum")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise DamageError(f"producer snapshot of {len(data)} bytes cannot hold {count} producers")
    entries = []
    for producer_id, epoch, sequence, offset, delta, time_ms, coordinator_epoch, opened in _ENTRY.iter_unpack(
        data[_HEAD.size :]
    ):
        batches = (BatchMetadata(sequence, offset, delta, time_ms),) if offset >= 0 else ()
        opened_at = opened if opened >= 0 else None
        entries.append(ProducerStateEntry(producer_id, epoch, coordinator_epoch, time_ms, opened_at, batches))
    return entries


def snapshot_offset(name: str) -> int | None:
    """Return the offset in the name of a snapshot file, None if it is another file."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    return int(stem) if stem != name and stem.isdecimal() else None


class SnapshotFiles:
    """The snapshots in one partition's folder."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._offsets: list[int] = []

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def find(self) -> None:
        offsets = map(snapshot_offset, self._storage.list_folder(self._folder))
        self._offsets = sorted(offset for offset in offsets if offset is not None)

    def read(self, offset: int) -> list[ProducerStateEntry]:
        """Return the producers in the snapshot at `offset`; `DamageError` when it cannot be trusted."""
        file = self._storage.open(self._path(offset))
        try:
            return decode_snapshot(file.read(0, file.size()))
        finally:
            file.close()

    def writing_steps(self, offset: int, entries: Iterable[ProducerStateEntry]) -> Iterator[Syncs]:
        """Write a snapshot unless one is at `offset` or later; yield what has to be synced before each next step."""
        if self._offsets and self._offsets[-1] >= offset:
            return
        file = self._storage.open(self._path(offset))
        file.truncate(0)
        file.append(encode_snapshot(entries))
        yield [file.sync]
        file.close()
        yield [partial(self._storage.sync_folder, self._folder)]
        self._offsets.append(offset)

    def delete(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._storage.delete(self._path(offset))

    def delete_all(self) -> None:
        for offset in self.offsets:
            self.delete(offset)

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}{SNAPSHOT_SUFFIX}"
