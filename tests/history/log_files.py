"""A broker's files without the broker: the batches of each segment, read by kafka-python, and the indexes.

Both brokers have the same file formats; the broker must not run.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka.record import MemoryRecords

_LENGTH: Final = struct.Struct(">qi")
_INDEX: Final = struct.Struct(">ii")
_TIME_INDEX: Final = struct.Struct(">qi")
_TRANSACTION_INDEX: Final = struct.Struct(">hqqqq")
_COMMIT: Final = b"\0\1"


class Batch(NamedTuple):
    """One batch with its position, its producer and its records; for a marker, whether it commits."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    commits: bool
    records: list[tuple[int, bytes | None, bytes | None]]


class AbortedRow(NamedTuple):
    """One row of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SegmentFiles(NamedTuple):
    """The content of a segment's four files; offsets in the indexes are absolute."""

    name: str
    size_bytes: int
    batches: list[Batch]
    offset_rows: list[tuple[int, int]]
    time_rows: list[tuple[int, int]]
    aborted_rows: list[AbortedRow]


class BadFileError(Exception):
    """An incomplete batch, an incomplete index row, or a wrong checksum."""


def partitions_of(data: Path) -> dict[str, list[SegmentFiles]]:
    """Read every partition in the folder; raises `BadFileError`."""
    return {
        folder.name: [_read_segment(log) for log in logs]
        for folder in sorted(data.iterdir())
        if folder.is_dir()
        for logs in [sorted(folder.glob("*.log"))]
        if logs
    }


def _read_segment(log: Path) -> SegmentFiles:
    data = log.read_bytes()
    base = int(log.stem)
    return SegmentFiles(
        f"{log.parent.name}/{log.stem}",
        len(data),
        list(_batches(log, data)),
        [(base + offset, position) for offset, position in _rows(log.with_suffix(".index"), _INDEX)],
        [(timestamp, base + offset) for timestamp, offset in _rows(log.with_suffix(".timeindex"), _TIME_INDEX)],
        [AbortedRow(*row) for _, *row in _rows(log.with_suffix(".txnindex"), _TRANSACTION_INDEX)],
    )


def _batches(log: Path, data: bytes) -> Iterator[Batch]:
    position = 0
    while position < len(data):
        where = f"{log.parent.name}/{log.name} at byte {position}"
        head = data[position : position + _LENGTH.size]
        end = position + _LENGTH.size + (_LENGTH.unpack(head)[1] if len(head) == _LENGTH.size else 0)
        batch: Any = MemoryRecords(data[position:end]).next_batch() if end <= len(data) else None
        if batch is None:
            raise BadFileError(f"{where}: half a batch")
        if not batch.validate_crc():
            raise BadFileError(f"{where}: a wrong checksum")
        records = [(record.offset, record.key, record.value) for record in batch]
        yield Batch(
            position,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            batch.is_control_batch,
            batch.is_control_batch and (records[0][1] or b"")[2:4] == _COMMIT,
            records,
        )
        position = end


def _rows(path: Path, row: struct.Struct) -> list[Any]:
    data = path.read_bytes() if path.exists() else b""
    if len(data) % row.size and data.strip(b"\0"):
        raise BadFileError(f"{path.parent.name}/{path.name}: half a row")
    return list(row.iter_unpack(data[: len(data) // row.size * row.size]))
