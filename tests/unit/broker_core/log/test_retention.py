"""Removal of records at both ends of a log."""

import pytest

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.simulation.disk import MemoryStorage
from tests.support.partition_logs import (
    COMMITTED,
    FOLDER,
    NOW_MS,
    UNCOMMITTED,
    append,
    batch,
    end,
    open_log,
    produce,
    truncate,
)

SIZE = len(batch(1))
TWO_EACH = {"segment.bytes": str(2 * SIZE), "index.interval.bytes": "0"}


def bases(storage: MemoryStorage, suffix: str = ".log") -> list[int]:
    return [int(name[:20]) for name in storage.list_folder(FOLDER) if name.endswith(suffix)]


def filled(storage: MemoryStorage, count: int, settings: dict[str, str]) -> PartitionLog:
    log = open_log(storage, TWO_EACH | settings)
    for at in range(count):
        append(log, timestamp_ms=NOW_MS + at)
    return log


def test_delete_records_moves_the_log_start_offset(storage: MemoryStorage) -> None:
    log = filled(storage, 7, {})
    assert log.delete_records_before(3) == 3
    assert bases(storage) == [2, 4, 6]
    assert log.delete_records_before(1) == 3
    with pytest.raises(KafkaError) as caught:
        log.read(2, 99, UNCOMMITTED)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, SIZE, UNCOMMITTED).next_offset == 4
    assert log.delete_records_before(-1) == 7
    assert bases(storage) == [6]
    assert log.read(7, 99, UNCOMMITTED).records == b""


@pytest.mark.parametrize("offset", [-2, 8])
def test_delete_records_outside_the_log_is_refused(offset: int) -> None:
    log = filled(MemoryStorage(), 7, {})
    with pytest.raises(KafkaError) as caught:
        log.delete_records_before(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_compacted_log_refuses_delete_records_and_skips_retention() -> None:
    log = filled(MemoryStorage(), 3, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaError) as caught:
        log.delete_records_before(1)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert log.apply_retention(NOW_MS + 10**12) == 0


def test_log_without_a_policy_keeps_records_until_they_are_deleted(storage: MemoryStorage) -> None:
    log = filled(storage, 3, {"cleanup.policy": "", "retention.ms": "1", "retention.bytes": "1"})
    assert log.apply_retention(NOW_MS + 10**12) == 0
    assert log.delete_records_before(2) == 2
    assert bases(storage) == [2]


def test_log_start_offset_survives_a_crash(storage: MemoryStorage) -> None:
    log = filled(storage, 7, {})
    log.sync()
    log.delete_records_before(3)
    storage.crash()
    log = open_log(storage, TWO_EACH)
    assert (log.log_start_offset, log.log_end_offset) == (3, 7)
    assert bases(storage) == [2, 4, 6]


# Rule C.7/2.
def test_log_start_offset_raises_the_last_stable_offset_to_the_batch_at_it(storage: MemoryStorage) -> None:
    log = open_log(storage)
    produce(log, 1, 0)
    append(log, 4)
    assert log.last_stable_offset == 0
    log.delete_records_before(1)
    assert (log.log_start_offset, log.first_unstable_offset, log.last_stable_offset) == (1, 1, 1)
    log.delete_records_before(3)
    for again in (log, open_log(storage)):
        assert (again.log_start_offset, again.first_unstable_offset, again.last_stable_offset) == (3, 1, 1)
        assert again.read(3, 1_000, COMMITTED).records == b""
    end(log, 1, commit=False)
    assert log.last_stable_offset == 6


def test_segments_are_deleted_by_age(storage: MemoryStorage) -> None:
    log = filled(storage, 7, {"retention.ms": "100"})
    assert log.apply_retention(NOW_MS + 101) == 0
    assert log.apply_retention(NOW_MS + 102) == 1
    assert (log.log_start_offset, bases(storage)) == (2, [2, 4, 6])
    assert log.apply_retention(NOW_MS + 1000) == 3
    assert (log.log_start_offset, log.log_end_offset, bases(storage)) == (7, 7, [7])
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert append(log).base_offset == 7


@pytest.mark.parametrize("commit", [True, False])
def test_only_the_first_of_old_transactions_is_deleted_by_age(commit: bool, storage: MemoryStorage) -> None:
    # As in findings/kafka-backfill-retention.sh: the first marker, as new as its commit, begins a segment.
    week_ms = 7 * 86_400_000
    log = open_log(storage, {"segment.ms": str(week_ms), "retention.ms": str(week_ms)})
    for at in range(3):
        produce(log, 1, at, timestamp_ms=NOW_MS - 2 * week_ms)
        end(log, 1, commit=commit)
    assert log.apply_retention(NOW_MS + week_ms) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(storage)) == (1, 6, [1])


def test_segments_are_deleted_by_size(storage: MemoryStorage) -> None:
    log = filled(storage, 7, {"retention.bytes": str(4 * SIZE)})
    assert log.apply_retention(NOW_MS) == 1
    assert bases(storage) == [2, 4, 6]
    assert log.size_bytes == 5 * SIZE
    assert log.apply_retention(NOW_MS) == 0


def test_unlimited_retention_and_records_without_timestamps() -> None:
    assert filled(MemoryStorage(), 7, {"retention.ms": "-1"}).apply_retention(NOW_MS * 2) == 0
    log = open_log(settings=TWO_EACH | {"retention.ms": "0"})
    for _ in range(5):
        append(log, timestamp_ms=-1)
    assert log.apply_retention(NOW_MS) == 0


def test_changed_settings_apply_immediately() -> None:
    log = filled(MemoryStorage(), 7, {})
    log.update_config(log.config.override({"retention.ms": "1"}))
    assert log.apply_retention(NOW_MS + 9999) == 4
    assert log.config.retention_ms == 1


# Rule C.9/6.
def test_snapshots_are_deleted_with_their_segments(storage: MemoryStorage) -> None:
    log = filled(storage, 7, {})
    assert bases(storage, ".snapshot") == [2, 4, 6]
    log.delete_records_before(5)
    assert bases(storage, ".snapshot") == [4, 6]


# Rule C.11/2.
def test_producers_outlive_their_deleted_records() -> None:
    log = open_log(settings=TWO_EACH)
    produce(log, 1, 0, transactional=False)
    for _ in range(5):
        append(log)
    log.delete_records_before(-1)
    assert produce(log, 1, 0, transactional=False).duplicate


# Rules C.11/1 and C.11/4.
def test_truncation_reopens_a_transaction_whose_marker_is_removed(log: PartitionLog) -> None:
    produce(log, 1, 0)
    end(log, 1, commit=False)
    produce(log, 2, 0)
    truncate(log, 1)
    assert [opened.producer_id for opened in log.producer_state.open_transactions] == [1]
    assert log.aborted_transactions() == []
    assert log.last_stable_offset == 0
    assert [entry.producer_id for entry in log.producer_state.entries] == [1]
    end(log, 1, commit=True)
    assert log.last_stable_offset == 2


def test_truncation_truncates_leader_epochs(log: PartitionLog) -> None:
    for leader_epoch in (0, 1, 2):
        append(log, leader_epoch=leader_epoch)
    truncate(log, 2)
    assert log.leader_epochs.latest == 1


def test_retention_of_no_bytes_deletes_all_segments() -> None:
    log = filled(MemoryStorage(), 5, {"retention.bytes": "0"})
    assert log.apply_retention(NOW_MS) == 3
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log).base_offset == 5
    assert log.apply_retention(NOW_MS) == 1
    assert log.apply_retention(NOW_MS) == 0
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


def test_retention_deletes_the_transaction_index_with_its_segment(storage: MemoryStorage) -> None:
    log = open_log(storage, TWO_EACH | {"retention.ms": "1000"})
    produce(log, 1, 0)
    end(log, 1, commit=False)
    for at in range(4):
        append(log, timestamp_ms=NOW_MS + at)
    # The index is that of the segment with the end marker.
    assert bases(storage, ".txnindex") == [1]
    assert log.apply_retention(NOW_MS + 100_000) > 0
    assert bases(storage, ".txnindex") == []
    assert log.read(log.log_start_offset, 99, COMMITTED).records == b""
