"""Batches and logs for tests of the partition log."""

from collections.abc import Mapping
from typing import Any

from broker_core.config import TopicConfig
from broker_core.log.partition_log import AppendResult, PartitionLog
from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.log.recovery import Recovery
from broker_core.ports import Storage
from broker_core.records.batch import NewRecord, build_batch
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition, TransactionEnd

NOW_MS = 1_700_000_000_000
FOLDER = "topic-0"
TOPIC_PARTITION = TopicPartition("topic", 0)
COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def batch(
    count: int = 1, *, timestamp_ms: int = NOW_MS, value: bytes = b"v", key: bytes | None = b"k", **fields: Any
) -> bytes:
    """Build a batch of `count` records, one millisecond apart."""
    return build_batch([NewRecord(key, value, (), timestamp_ms + i) for i in range(count)], **fields)


def open_log(
    storage: Storage | None = None, settings: Mapping[str, str] | None = None, *, now_ms: int = NOW_MS, **options: Any
) -> PartitionLog:
    """Open a log in its usual folder, by default in new memory storage."""
    config = TopicConfig().override(settings or {})
    return PartitionLog.open(storage or MemoryStorage(), FOLDER, TOPIC_PARTITION, config, now_ms, **options)


def append(log: PartitionLog, count: int = 1, *, leader_epoch: int = 0, **fields: Any) -> AppendResult:
    """Append a plain batch."""
    return log.append_as_leader(batch(count, **fields), now_ms=NOW_MS, leader_epoch=leader_epoch)


def produce(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    transactional: bool = True,
    bumps_epoch: bool = False,
    **options: Any,
) -> AppendResult:
    """Append as a producer would; a transaction is verified first."""
    guard = log.producer_state.start_verification(producer_id, epoch, sequence, bumps_epoch) if transactional else None
    data = batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        **options,
    )
    return log.append_as_leader(data, now_ms=NOW_MS, leader_epoch=0, transaction_guard=guard)


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> AppendResult:
    """Append an end marker."""
    end = TransactionEnd(ProducerIdentity(producer_id, epoch), commit, coordinator_epoch, version)
    return log.append_end_txn_marker(end, now_ms=NOW_MS, leader_epoch=0)


def truncate(log: PartitionLog, offset: int) -> None:
    """Cut a log at `offset`, as the election of a leader without the later records does; batches go as a whole."""
    if offset >= log.log_end_offset:
        return
    for taken in log.snapshots.offsets:
        if taken > offset:
            log.snapshots.delete(taken)
    while len(log.segments) > 1 and log.segments.active.base_offset > offset:
        log.segments.drop_last().delete()
    active = log.segments.active
    active.truncate_to_position(active.position_of(offset), offset)
    active.sync()
    Recovery(log, NOW_MS, log._producer_expiration_ms).rebuild()
    if log.log_start_offset > log.log_end_offset:
        log.log_start_offset = log.log_end_offset
        log.save_log_start()


def newest_only(entry: ProducerStateEntry) -> ProducerStateEntry:
    """Return the entry as a snapshot stores it, with its newest batch only."""
    if not entry.batches:
        return entry
    # The snapshot has one timestamp for both the entry and the batch.
    return entry._replace(batches=(entry.batches[-1]._replace(timestamp_ms=entry.last_timestamp_ms),))
