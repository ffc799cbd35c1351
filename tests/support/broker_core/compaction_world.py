"""Compacted logs: a consumer's view of them, and power loss during compaction."""

from collections.abc import Iterable, Mapping
from typing import Any

from broker_core.log.cleaner import plan_cleaning
from broker_core.log.partition_log import AppendResult, PartitionLog
from broker_core.log.recovery_table import LogCondition
from broker_core.records.batch import NewRecord, Record, build_batch, read_records
from broker_core.records.control import ControlType, control_type_of
from broker_core.records.header import BatchHeader, crc_matches, iter_headers
from broker_core.simulation.disk import MemoryFile, MemoryStorage, Node
from tests.support.partition_logs import COMMITTED, FOLDER, NOW_MS, UNCOMMITTED, end, open_log

RETENTION_MS = 1000
LATER_MS = NOW_MS + RETENTION_MS
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": str(RETENTION_MS),
    "index.interval.bytes": "80",
    "segment.bytes": "100000",
}
Pairs = Iterable[tuple[bytes | None, bytes | None]]


def is_due(log: PartitionLog, now_ms: int) -> bool:
    """Return whether a pass has something to compact."""
    return plan_cleaning(log, now_ms) is not None


def write(
    log: PartitionLog,
    pairs: Pairs,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    **fields: Any,
) -> AppendResult:
    """Append one batch of keys and values; a transactional batch is verified first."""
    records = [NewRecord(key, value, (("h", b"x"),), timestamp_ms + at) for at, (key, value) in enumerate(pairs)]
    data = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        **fields,
    )
    guard = log.producer_state.start_verification(producer_id, epoch, sequence, False) if transactional else None
    return log.append_as_leader(data, now_ms=NOW_MS, leader_epoch=0, transaction_guard=guard)


def roll(log: PartitionLog) -> None:
    """Begin a new segment, so that the earlier ones may be compacted."""
    log.roll()


def world(settings: Mapping[str, str] | None = None) -> tuple[MemoryStorage, PartitionLog]:
    """Open an empty compacted log."""
    storage = MemoryStorage()
    return storage, open_log(storage, {**COMPACTED, **(settings or {})})


def reopened(
    storage: MemoryStorage, settings: Mapping[str, str] | None = None, *, without_snapshots: bool = False
) -> PartitionLog:
    """Reopen the log, optionally after its producer snapshots are deleted."""
    if without_snapshots:
        for name in storage.list_folder(FOLDER):
            if name.endswith(".snapshot"):
                storage.delete(f"{FOLDER}/{name}")
    return open_log(storage, {**COMPACTED, **(settings or {})})


def transact(log: PartitionLog, producer_id: int, sequence: int, *keys: bytes, commit: bool | None = True) -> None:
    """Write keys in a transaction, and end the transaction unless `commit` is None."""
    write(
        log,
        [(key, b"%d" % sequence) for key in keys],
        producer_id=producer_id,
        epoch=0,
        sequence=sequence,
        transactional=True,
    )
    if commit is not None:
        end(log, producer_id, commit=commit)


def dirty(log: PartitionLog) -> None:
    """Write records for the next pass to compact."""
    write(log, [(b"other", b"v")])
    roll(log)


def recovery_findings(log: PartitionLog) -> list[LogCondition]:
    """Return what recovery reported, without the empty segment that follows a roll."""
    return [finding.condition for finding in log.findings if finding.condition is not LogCondition.HALF_CREATED_SEGMENT]


def batches(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Return every batch, as read_uncommitted, with verified checksums."""
    found, offset = [], log.log_start_offset
    while offset < log.high_watermark:
        result = log.read(offset, 100_000, UNCOMMITTED)
        assert result.next_offset > offset, "a reader is stuck"
        for at, header in iter_headers(result.records):
            assert crc_matches(result.records, at, header)
            found.append((header, read_records(result.records, at, header)))
        offset = result.next_offset
    return found


def data_offsets(log: PartitionLog) -> list[int]:
    return [record.offset for header, records in batches(log) if not header.is_control for record in records]


def marker_offsets(log: PartitionLog) -> list[int]:
    return [header.base_offset for header, _ in batches(log) if header.is_control]


def empty_offsets(log: PartitionLog) -> list[int]:
    return [header.last_offset for header, records in batches(log) if not records]


def consume(log: PartitionLog, start: int | None = None, max_bytes: int = 300) -> list[Record]:
    """Return the records that a read_committed consumer sees up to the last stable offset, as rules D.2 describe."""
    found: list[Record] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.last_stable_offset:
        result = log.read(offset, max_bytes, COMMITTED)
        assert result.next_offset > offset, "a reader is stuck"
        waiting = list(result.aborted or [])
        aborting: set[int] = set()
        for at, header in iter_headers(result.records):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            records = read_records(result.records, at, header)
            if header.is_control:
                if records and control_type_of(records[0].key) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [record for record in records if record.offset >= offset]
        offset = result.next_offset
    return found


def view(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """Return the newest value of each key; a tombstone removes its key."""
    newest: dict[bytes | None, bytes] = {}
    for record in records:
        newest.pop(record.key, None)
        if record.value is not None:
            newest[record.key] = record.value
    return newest


class PowerLoss(BaseException):
    """A loss of power: nothing is written after it."""


class FailingStorage(MemoryStorage):
    """A storage that loses power after `budget` more changes, or never if it is None."""

    def __init__(self) -> None:
        super().__init__()
        self.budget: int | None = None

    def spend(self) -> None:
        if self.budget is not None:
            if self.budget <= 0:
                raise PowerLoss
            self.budget -= 1

    def open(self, path: str) -> MemoryFile:
        if not self.exists(path):
            self.spend()
        file = super().open(path)
        return FailingFile(self, file._node)

    def delete(self, path: str) -> None:
        self.spend()
        super().delete(path)

    def rename(self, old_path: str, new_path: str) -> None:
        self.spend()
        super().rename(old_path, new_path)

    def sync_folder(self, path: str) -> None:
        self.spend()
        super().sync_folder(path)


class FailingFile(MemoryFile):
    """A file of a `FailingStorage`."""

    def __init__(self, storage: FailingStorage, node: Node) -> None:
        super().__init__(node)
        self._storage = storage

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._storage.spend()
        super().append(data)

    def truncate(self, size_bytes: int) -> None:
        self._storage.spend()
        super().truncate(size_bytes)

    def sync(self) -> None:
        self._storage.spend()
        super().sync()
