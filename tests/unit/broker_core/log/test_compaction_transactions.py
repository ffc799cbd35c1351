"""Compaction of transactions and producers: rules C.12 row by row."""

import pytest

from broker_core.log.filtered_batches import empty_batch
from broker_core.records.control import build_end_txn_marker
from broker_core.records.header import BatchHeader
from tests.support.broker_core.compaction_world import (
    LATER_MS,
    RETENTION_MS,
    batches,
    consume,
    data_offsets,
    dirty,
    empty_offsets,
    marker_offsets,
    reopened,
    roll,
    transact,
    view,
    world,
    write,
)
from tests.support.partition_logs import FOLDER, NOW_MS, end, newest_only

# Transactions


# Rules C.12/2 and C.12/7.
def test_aborted_data_is_removed_and_deletes_no_key() -> None:
    storage, log = world()
    write(log, [(b"a", b"kept"), (b"b", b"old")])
    transact(log, 1, 0, b"a", b"c", commit=False)
    transact(log, 1, 2, b"b", commit=True)
    roll(log)
    assert len(log.aborted_transactions()) == 1
    log.compact(NOW_MS)
    assert data_offsets(log) == [0, 5]
    assert marker_offsets(log) == [4, 6]
    assert view(consume(log)) == {b"a": b"kept", b"b": b"2"}
    # The marker stays, and so does its row in the index.
    assert [entry.last_offset for entry in log.aborted_transactions()] == [4]
    assert [entry.last_offset for entry in reopened(storage).aborted_transactions()] == [4]


# Rules C.12/2 and C.12/3.
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_over_several_segments_is_compacted(commit: bool) -> None:
    _, log = world({"segment.bytes": "200"})
    write(log, [(b"a", b"old"), (b"b", b"old")])
    roll(log)
    transact(log, 1, 0, b"a", commit=None)
    roll(log)
    transact(log, 1, 1, b"b", commit=None)
    roll(log)
    end(log, 1, commit=commit)
    write(log, [(b"c", b"new")])
    roll(log)
    log.compact(NOW_MS)
    kept = {b"a": b"0", b"b": b"1"} if commit else {b"a": b"old", b"b": b"old"}
    assert view(consume(log)) == {**kept, b"c": b"new"}
    assert data_offsets(log) == ([2, 3, 5] if commit else [0, 1, 5])
    for start in range(log.log_end_offset):
        assert [record.offset for record in consume(log, start)] == [
            offset for offset in data_offsets(log) if offset >= start
        ]


# Rules C.12/4, C.12/5 and C.12/7.
@pytest.mark.parametrize("commit", [True, False])
def test_marker_is_removed_after_its_data_and_delete_horizon(commit: bool) -> None:
    _, log = world()
    transact(log, 1, 0, b"a", commit=commit)
    transact(log, 1, 1, b"b")
    write(log, [(b"a", b"new")])
    roll(log)
    log.compact(NOW_MS)
    header = next(header for header, _ in batches(log) if header.base_offset == 1)
    assert header.has_delete_horizon and header.base_timestamp == LATER_MS
    dirty(log)
    log.compact(LATER_MS - 1)
    assert marker_offsets(log) == [1, 3]
    assert len(log.aborted_transactions()) == (0 if commit else 1)
    dirty(log)
    log.compact(LATER_MS)
    assert marker_offsets(log) == [3]
    assert log.aborted_transactions() == []


# Rule C.12/4.
def test_marker_is_kept_while_its_data_remains() -> None:
    _, log = world()
    transact(log, 1, 0, b"a", b"b")
    transact(log, 1, 2, b"c")
    write(log, [(b"a", b"new")])
    roll(log)
    for now_ms in (NOW_MS, LATER_MS, LATER_MS * 2):
        log.compact(now_ms)
        dirty(log)
    assert 2 in marker_offsets(log)
    assert not any(header.has_delete_horizon for header, _ in batches(log))


# Producers


# Rule C.12/6.
@pytest.mark.parametrize("commit", [True, False])
def test_last_batch_of_a_producer_is_kept_without_its_records(commit: bool) -> None:
    storage, log = world()
    transact(log, 1, 0, b"a", b"b", commit=True)
    transact(log, 1, 2, b"a", b"b", commit=commit)
    write(log, [(b"a", b"x"), (b"b", b"x"), (b"c", b"x")], producer_id=2, epoch=3, sequence=7)
    write(log, [(b"a", b"y"), (b"b", b"y"), (b"c", b"y")])
    roll(log)
    before = log.producer_state.entries
    for now_ms in (NOW_MS, LATER_MS, LATER_MS * 2):
        log.compact(now_ms)
        dirty(log)
    log.sync()
    assert empty_offsets(log) == [4, 8]
    # No data was left before the first transaction's marker; the second transaction still has an empty batch.
    assert marker_offsets(log) == [5]
    for without_snapshots in (False, True):
        again = reopened(storage, without_snapshots=without_snapshots)
        assert [newest_only(entry) for entry in again.producer_state.entries] == [
            newest_only(entry) for entry in before
        ]
        assert again.producer_state.open_transactions == []
        duplicate = write(again, [(b"q", b"q")] * 3, producer_id=2, epoch=3, sequence=7)
        assert duplicate.duplicate and duplicate.base_offset == 6
    assert not any(header.record_count == 0 and header.max_timestamp < 0 for header, _ in batches(log))


def test_empty_batch_is_removed_when_its_producer_continues_or_expires() -> None:
    _, log = world()
    write(log, [(b"a", b"1")], producer_id=1, epoch=0, sequence=0)
    write(log, [(b"b", b"1")], producer_id=2, epoch=0, sequence=0)
    write(log, [(b"a", b"2"), (b"b", b"2")])
    roll(log)
    log.compact(NOW_MS)
    assert empty_offsets(log) == [0, 1]
    write(log, [(b"c", b"1")], producer_id=1, epoch=1, sequence=0)
    dirty(log)
    log.compact(NOW_MS)
    assert empty_offsets(log) == [1]
    log.expire_producers(NOW_MS + 10, 5)
    dirty(log)
    log.compact(NOW_MS + 10)
    assert empty_offsets(log) == []


# Rule C.12/6.
def test_marker_of_a_producer_without_other_batches_is_kept() -> None:
    storage, log = world()
    transact(log, 1, 0, b"a", commit=None)
    # A marker of transactions V2 carries the epoch of the next transaction.
    end(log, 1, commit=False, epoch=1, coordinator_epoch=4, version=2)
    write(log, [(b"a", b"1")])
    roll(log)
    before = log.producer_state.entries
    assert before[0].batches == ()
    for now_ms in (NOW_MS, LATER_MS, LATER_MS * 2):
        log.compact(now_ms)
        dirty(log)
    assert marker_offsets(log) == [1]
    log.sync()
    assert reopened(storage, without_snapshots=True).producer_state.entries == before
    log.expire_producers(NOW_MS + 10, 5)
    log.compact(LATER_MS * 3)
    dirty(log)
    log.compact(LATER_MS * 4 + RETENTION_MS)
    assert marker_offsets(log) == []


# Rules C.12/8 and C.12/9.
def test_last_batch_of_the_range_is_kept_for_reader_progress() -> None:
    _, log = world({"cleanup.policy": "delete"})
    write(log, [(b"a", b"1")])
    write(log, [(None, b"1"), (None, b"2")])
    roll(log)
    log.update_config(log.config.override({"cleanup.policy": "compact"}))
    log.compact(NOW_MS)
    assert empty_offsets(log) == [2]
    # A consumer at offset 1 would otherwise wait forever for the last stable offset, 3.
    assert [record.offset for record in consume(log)] == [0]
    dirty(log)
    log.compact(NOW_MS)
    assert empty_offsets(log) == []
    assert [record.offset for record in consume(log)] == [0, 3]


def test_recovery_never_starts_inside_a_transaction_whose_marker_is_removed() -> None:
    storage, log = world()
    transact(log, 1, 0, b"a", commit=None)
    roll(log)
    end(log, 1, commit=False)
    write(log, [(b"a", b"1")])
    log.expire_producers(NOW_MS + 10, 5)
    for now_ms in (NOW_MS, LATER_MS):
        roll(log)
        log.compact(now_ms)
        write(log, [(b"other", b"v")])
    assert marker_offsets(log) == []
    log.close(NOW_MS)
    # The newest snapshots are damaged, so recovery tries the older ones.
    for name in storage.list_folder(FOLDER):
        if name.endswith(".snapshot") and int(name[:20]) >= log.segments.active.base_offset:
            storage.open(f"{FOLDER}/{name}").truncate(3)
    again = reopened(storage)
    assert again.producer_state.open_transactions == []
    assert again.last_stable_offset == again.log_end_offset


# Rule C.12/8.
def test_empty_control_batch_is_skipped_and_then_removed() -> None:
    """Kafka leaves such a batch for a producer that had only a marker; this one comes from a log that Kafka wrote."""
    storage, log = world()
    write(log, [(b"a", b"1")])
    log._append(bytearray(_empty_marker()), BatchHeader.parse(_empty_marker()), 0, None)
    write(log, [(b"b", b"1")])
    roll(log)
    log = reopened(storage, without_snapshots=True)
    assert [record.offset for _, _, record in log.read_journal()] == [0, 2]
    assert [record.offset for record in consume(log)] == [0, 2]
    log.compact(NOW_MS)
    assert marker_offsets(log) == []
    assert data_offsets(log) == [0, 2]


def _empty_marker() -> bytes:
    marker = build_end_txn_marker(
        commit=True, producer_id=9, producer_epoch=1, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    return empty_batch(marker.header)
