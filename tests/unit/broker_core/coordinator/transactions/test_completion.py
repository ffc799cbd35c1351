"""Markers are retried until answered, and a new coordinator continues with them (rules A.12, A.13)."""

import logging

import pytest

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.transactions.completion import RETRY_BACKOFF_MS
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition, TransactionEnd, TransactionState
from tests.support.broker_core.transaction_world import ID, T0, T1, World

E = ErrorCode
RETRIABLE = (3, 6, 7, 13, 19, 20, 56)
CANCELLING = (47, 52)
ILLEGAL = (2, 10, 18, 21, -1)


def prepared(world: World, *partitions: TopicPartition, commit: bool = True) -> ProducerIdentity:
    """Bring the id to PrepareCommit (or PrepareAbort) with markers ready."""
    held = world.identity()
    assert world.add(held, *partitions) is E.NONE
    assert world.end(held, commit=commit).error is E.NONE
    return held


def take(world: World) -> MarkerOrder:
    """Return the only marker order."""
    (order,) = world.coordinator.completion.take()
    return order


# Markers


def test_marker_order_contains_all_fields_of_a_marker(world: World) -> None:
    prepared(world, T0, T1)
    order = take(world)
    partition = world.coordinator.store.partition_for(ID)
    end = TransactionEnd(ProducerIdentity(4000, 1), True, world.journal.epochs[partition], 2)
    assert order[:4] == (ID, partition, end, frozenset({T0, T1}))


# Rules A.13 sender/1 and A.13 completion/1.
def test_transaction_completes_once_with_its_last_marker(world: World) -> None:
    prepared(world, T0, T1)
    order = take(world)
    world.coordinator.completion.answered(order, {T0: E.NONE}, world.now_ms)
    assert world.state() == "PrepareCommit"
    world.coordinator.completion.answered(order, {T1: E.NONE}, world.now_ms)
    assert world.state() == "CompleteCommit"
    records = len(world.history())
    world.answer(order)
    assert len(world.history()) == records


# Rule A.13 sender/2.
@pytest.mark.parametrize("code", RETRIABLE)
def test_retriable_marker_error_is_retried_after_a_backoff(code: int, world: World) -> None:
    prepared(world, T0, T1)
    order = take(world)
    world.coordinator.completion.answered(order, {T0: ErrorCode(code), T1: E.NONE}, world.now_ms)
    assert world.coordinator.next_deadline_ms() == world.now_ms + RETRY_BACKOFF_MS
    world.advance(RETRY_BACKOFF_MS - 1)
    assert world.coordinator.completion.take() == []
    world.advance(1)
    again = take(world)
    assert again.partitions == {T0}
    assert again.order_id != order.order_id
    world.answer(again)
    assert world.state() == "CompleteCommit"


# Rules A.13 sender/3, A.13 sender/5 and A.12/5.
@pytest.mark.parametrize("code", CANCELLING + ILLEGAL)
def test_fatal_marker_error_leaves_the_transaction_prepared_until_the_next_load(
    code: int, caplog: pytest.LogCaptureFixture, world: World
) -> None:
    prepared(world, T0, T1)
    order = take(world)
    with caplog.at_level(logging.WARNING):
        world.coordinator.completion.answered(order, {T0: ErrorCode(code)}, world.now_ms)
    assert ID in caplog.text
    world.coordinator.completion.answered(order, {T1: E.NONE}, world.now_ms)
    world.advance(100_000)
    assert world.coordinator.completion.take() == []
    assert world.state() == "PrepareCommit"
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    world.lead()
    assert world.run_markers()[0].partitions == {T0, T1}
    assert world.state() == "CompleteCommit"


# Rule A.13 sender/6.
def test_deleted_partitions_need_no_marker(world: World, held: ProducerIdentity) -> None:
    world.add(held, T0, T1)
    world.gone = {T0}
    world.end(held)
    assert take(world).partitions == {T1}
    only_gone = World()
    held = only_gone.identity()
    only_gone.add(held)
    only_gone.gone = {T0}
    assert only_gone.end(held).error is E.NONE
    assert only_gone.state() == "CompleteCommit"


# Rule A.13 sender/6.
def test_partition_deleted_while_its_marker_is_retried_is_dropped(world: World) -> None:
    prepared(world)
    world.answer(take(world), E.UNKNOWN_TOPIC_OR_PARTITION)
    world.gone = {T0}
    world.advance(RETRY_BACKOFF_MS)
    assert world.coordinator.completion.take() == []
    assert world.state() == "CompleteCommit"


# Rule A.13 completion/5.
def test_late_marker_response_does_not_end_the_next_transaction_of_the_same_epoch() -> None:
    world = World(level=1)
    held = prepared(world)
    first = take(world)
    world.answer(first)
    world.add(held)
    world.end(held)
    second = take(world)
    world.answer(first)
    assert world.state() == "PrepareCommit"
    world.answer(second)
    assert world.state() == "CompleteCommit"


# Rule A.13 completion/5.
def test_marker_response_for_an_older_coordinator_epoch_is_ignored(world: World) -> None:
    prepared(world)
    old = take(world)
    world.lead()
    world.answer(old)
    assert world.state() == "PrepareCommit"
    new = take(world)
    assert new.end.coordinator_epoch == old.end.coordinator_epoch + 1
    world.answer(new)
    assert world.state() == "CompleteCommit"


# Rules A.13 completion/2, A.13 completion/3 and A.13 completion/4. A full disk is a storage error until it has space.
@pytest.mark.parametrize("first", [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER])
def test_completion_refused_with_a_retriable_error_is_recorded_later(first: ErrorCode, world: World) -> None:
    prepared(world)
    world.journal.refuse_next = [first, E.REQUEST_TIMED_OUT]
    world.answer(take(world))
    for _ in range(2):
        assert world.state() == "PrepareCommit"
        assert world.init().error is E.CONCURRENT_TRANSACTIONS
        world.advance(RETRY_BACKOFF_MS)
    assert world.state() == "CompleteCommit"
    assert world.coordinator.completion.take() == []
    assert [image.state for image in world.history() if image][-2:] == [
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]


@pytest.mark.parametrize("version", [0, 2])
def test_completion_refused_with_a_fatal_error_waits_for_the_next_load(version: int) -> None:
    world = World()
    held = world.identity()
    world.add(held)
    world.end(held, version=version)
    world.journal.refuse_next = [E.MESSAGE_TOO_LARGE]
    world.answer(take(world))
    world.advance(100_000)
    assert world.state() == "PrepareCommit"
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    assert world.end(held, version=version).error is E.CONCURRENT_TRANSACTIONS
    assert world.end(held, commit=False, version=version).error is E.INVALID_TXN_STATE
    world.lead()
    world.run_markers()
    assert world.state() == "CompleteCommit"


# Failover


# Rules A.12/1 and A.12/5.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_new_coordinator_sends_the_markers_again(level: int, commit: bool) -> None:
    world = World(level)
    prepared(world, T0, T1, commit=commit)
    old_order = take(world)
    old = world.fail_over()
    order = take(world)
    assert order.partitions == {T0, T1}
    assert order.end.coordinator_epoch == old_order.end.coordinator_epoch + 1
    old.completion.answered(old_order, dict.fromkeys(old_order.partitions, E.NONE), world.now_ms)
    assert world.state() == ("PrepareCommit" if commit else "PrepareAbort")
    world.answer(order)
    assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert [image.state.label for image in world.history() if image].count(world.state()) == 1


# Rule A.12/6.
def test_open_transaction_stays_open_after_load_and_its_timeout_continues(world: World, held: ProducerIdentity) -> None:
    world.add(held)
    world.now_ms += 59_000
    world.fail_over()
    assert world.state() == "Ongoing"
    world.advance(10_000)
    assert world.state() == "PrepareAbort"


def test_interrupted_empty_abort_is_completed_at_load(world: World, held: ProducerIdentity) -> None:
    world.journal.refuse_next = []
    partition = world.coordinator.store.partition_for(ID)
    assert world.end(held, commit=False).error is E.NONE
    world.journal.partitions[partition].pop()
    world.fail_over()
    assert world.state() == "CompleteAbort"
    assert world.end(held, commit=False)[1:] == (4000, 1)


# Rule A.12/2.
def test_last_record_of_an_id_wins_and_a_tombstone_removes_it(world: World) -> None:
    world.identity()
    world.identity()
    partition = world.coordinator.store.partition_for(ID)
    world.fail_over()
    assert world.image().producer_epoch == 1
    key = world.journal.partitions[partition][0].key
    assert key is not None
    world.journal.append(partition, world.journal.epochs[partition], [JournalRecord(key, None)], world.now_ms)
    world.fail_over()
    assert world.coordinator.images() == {}


# Rule A.12/3.
def test_unknown_record_versions_and_markers_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    held = world.identity()
    partition = world.coordinator.store.partition_for(ID)
    epoch = world.journal.epochs[partition]
    strange = [JournalRecord(b"\x00\x09abc", b"x"), JournalRecord(b"\x00\x00\x00\x01a", b"\x00\x07")]
    world.journal.append(partition, epoch, strange, world.now_ms)
    world.journal.append_marker(partition, epoch, TransactionEnd(held, True, 0, 0), world.now_ms)
    with caplog.at_level(logging.WARNING):
        world.fail_over()
    assert set(world.coordinator.images()) == {ID}
    assert len(caplog.records) == 2


# Rule A.12/4.
@pytest.mark.parametrize(
    "damage",
    [JournalRecord(None, b"x"), JournalRecord(b"\x00\x00\x00\x01a", b"\x00\x01 cut")],  # type: ignore[arg-type]
)
def test_damaged_record_ends_the_load_and_earlier_records_are_used(
    damage: JournalRecord, caplog: pytest.LogCaptureFixture, world: World
) -> None:
    world.identity()
    partition = world.coordinator.store.partition_for(ID)
    world.journal.append(partition, world.journal.epochs[partition], [damage], world.now_ms)
    world.identity()
    world.fail_over()
    assert world.image().producer_epoch == 0
    assert any(record.levelno == logging.ERROR for record in caplog.records)


# Rule A.12/8.
def test_late_election_is_ignored(world: World) -> None:
    prepared(world)
    order = take(world)
    partition = world.coordinator.store.partition_for(ID)
    world.coordinator.become_leader(partition, world.journal.epochs[partition] - 1, world.now_ms)
    world.answer(order)
    assert world.state() == "CompleteCommit"


# Rule A.12/7.
def test_resignation_drops_state_and_markers(world: World) -> None:
    held = prepared(world)
    order = take(world)
    world.coordinator.resign(world.coordinator.store.partition_for(ID))
    world.answer(order)
    assert world.coordinator.images() == {}
    assert world.end(held).error is E.NOT_COORDINATOR
    assert world.coordinator.describe(ID) is E.NOT_COORDINATOR
    for partition in range(world.partition_count):
        world.coordinator.resign(partition)
    assert world.coordinator.next_deadline_ms() is None
