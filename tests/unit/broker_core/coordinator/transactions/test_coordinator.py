"""The transaction coordinator answers and records as the rules say (rules A.6 to A.9, A.15)."""

import pytest

from broker_core.coordinator.transactions.messages import ProducerIdResult
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TransactionState
from tests.support.broker_core.transaction_world import ID, T0, T1, World

E = ErrorCode
LEVELS = (0, 1, 2)


def result(error: ErrorCode, identity: ProducerIdentity | tuple[int, int] = (-1, -1)) -> ProducerIdResult:
    return ProducerIdResult(error, *identity)


# AddPartitionsToTxn


# Rules A.6/9 and A.6/10.
def test_adding_partitions_begins_and_extends_a_transaction(world: World, held: ProducerIdentity) -> None:
    assert world.add(held, T0) is E.NONE
    began_ms = world.now_ms
    world.now_ms += 500
    assert world.add(held, T1) is E.NONE
    image = world.image()
    assert (image.partitions, image.start_ms, image.update_ms) == (frozenset({T0, T1}), began_ms, began_ms + 500)


# Rules A.6/1, A.6/3, A.6/4, A.6/5, A.6/6 and A.6/7.
def test_add_partitions_table(world: World, held: ProducerIdentity) -> None:
    assert (
        world.coordinator.add_partitions("", held, [T0], client_transaction_version=0, now_ms=world.now_ms)
        is E.INVALID_REQUEST
    )
    assert (
        world.coordinator.add_partitions(None, held, [T0], client_transaction_version=0, now_ms=world.now_ms)
        is E.INVALID_REQUEST
    )
    assert (
        world.coordinator.add_partitions("who", held, [T0], client_transaction_version=0, now_ms=world.now_ms)
        is E.INVALID_PRODUCER_ID_MAPPING
    )
    assert world.add(ProducerIdentity(17, 0)) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.add(ProducerIdentity(4000, 1)) is E.PRODUCER_FENCED
    assert world.add(held) is E.NONE
    world.end(held)
    assert world.add(held) is E.CONCURRENT_TRANSACTIONS
    assert world.add(ProducerIdentity(17, 0)) is E.CONCURRENT_TRANSACTIONS  # a pending transition takes precedence


# Rules A.6 verify/1, A.6 verify/2, A.6 verify/3, A.6 verify/4, A.6 verify/5, A.6 verify/6 and A.6 verify/7.
def test_verification_answers_each_partition_and_records_nothing(world: World, held: ProducerIdentity) -> None:
    verify = world.coordinator.verify_partitions
    assert verify(ID, held, [T0]) == {T0: E.TRANSACTION_ABORTABLE}
    world.add(held, T0)
    before = len(world.history())
    assert verify(ID, held, [T0, T1]) == {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}
    assert verify(ID, ProducerIdentity(17, 0), [T0]) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify("who", held, [T0]) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify(ID, ProducerIdentity(4000, 7), [T0]) == {T0: E.PRODUCER_FENCED}
    assert verify(None, held, [T0]) == {T0: E.INVALID_REQUEST}
    assert len(world.history()) == before
    world.end(held)
    assert verify(ID, ProducerIdentity(4000, 1), [T0]) == {T0: E.CONCURRENT_TRANSACTIONS}
    world.coordinator.resign(world.coordinator.store.partition_for(ID))
    assert verify(ID, held, [T0]) == {T0: E.NOT_COORDINATOR}


# EndTxn


# Rules A.8 V1/1, A.8 V1/2, A.8 V1/3, A.8 V1/4, A.8 V1/11 and A.8 V2/1.
def test_v1_end_table_refusals() -> None:
    world = World(1)
    held = world.identity()
    assert world.end(held) == result(E.INVALID_TXN_STATE)
    assert world.end(held, commit=False) == result(E.INVALID_TXN_STATE)
    assert world.end(ProducerIdentity(17, 0)) == result(E.INVALID_PRODUCER_ID_MAPPING)
    assert world.end(ProducerIdentity(4000, 1)) == result(E.PRODUCER_FENCED)
    for transactional_id, error in (("", E.INVALID_REQUEST), ("who", E.INVALID_PRODUCER_ID_MAPPING)):
        for version in (0, 2):
            answer = world.coordinator.end_transaction(
                transactional_id, held, commit=True, client_transaction_version=version, now_ms=world.now_ms
            )
            assert answer == result(error)


# Rules A.8 V2/5, A.8 V2/9, A.8 V2/11, A.8 V2/12, A.8 V2/13, A.9/1, A.9/2, A.9/3, A.9/5, A.12/10 and A.15/7.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_v2_end_bumps_the_epoch_and_recognizes_its_retry(level: int, commit: bool) -> None:
    world = World(level)
    held = world.identity()
    world.add(held, version=2)
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))
    assert world.end(held, commit=commit, version=2) == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    end = order.end
    assert (end.commit, end.producer.producer_epoch, end.transaction_version) == (commit, 1, 2)
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))
    assert world.end(held, commit=not commit, version=2) == result(E.INVALID_TXN_STATE)
    world.fail_over()
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))


# Rules A.8 V2/6, A.8 V2/7 and A.8 V2/12.
def test_v2_end_without_a_transaction(world: World, held: ProducerIdentity) -> None:
    assert world.end(held) == result(E.INVALID_TXN_STATE)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 1))
    assert world.coordinator.completion.take() == []
    prepared, complete = world.history()[-2:]
    assert prepared is not None
    assert prepared.start_ms == world.now_ms
    assert complete is not None
    assert complete.state is TransactionState.COMPLETE_ABORT
    assert world.end(held, commit=False) == result(E.NONE, (4000, 1))  # a retry
    assert world.end(ProducerIdentity(4000, 1), commit=False) == result(E.NONE, (4000, 2))  # another transaction


# Rules A.9/1, A.9/2, A.9/3, A.9/4, A.9/5 and A.9/7.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("failover", [False, True])
def test_v2_end_at_the_last_epoch_continues_with_a_new_producer_id(commit: bool, failover: bool, world: World) -> None:
    held = world.at(TransactionState.ONGOING, 32766)
    assert world.end(held, commit=commit) == result(E.NONE, (4000, 0))
    assert world.image().identity == (9, 32767)
    assert world.image().next_producer_id == 4000
    assert world.end(held, commit=commit) == result(E.CONCURRENT_TRANSACTIONS)
    if failover:
        world.fail_over()
    (order,) = world.run_markers()
    assert order.end.producer == (9, 32767)
    image = world.image()
    assert (image.identity, image.previous_producer_id, image.next_producer_id) == ((4000, 0), 9, -1)
    if failover:
        world.fail_over()
    assert world.end(held, commit=commit) == result(E.NONE, (4000, 0))
    assert world.end(held, commit=not commit) == result(E.INVALID_TXN_STATE)
    assert world.add(ProducerIdentity(4000, 0)) is E.NONE
    assert world.end(held, commit=commit) == result(E.INVALID_PRODUCER_ID_MAPPING)


def test_v2_empty_abort_at_the_last_epoch_rotates_the_producer_id(world: World) -> None:
    held = world.at(TransactionState.EMPTY, 32766)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 0))
    assert world.image().identity == (4000, 0)


# Refused records


# Rules A.3/1, A.3/2, A.3/3 and A.3/4.
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.POLICY_VIOLATION, E.POLICY_VIOLATION),
    ],
)
def test_refused_record_changes_nothing(version: int, refusal: ErrorCode, expected: ErrorCode) -> None:
    world = World()
    held = world.identity()
    before = world.image()
    world.journal.refuse_next = [refusal] * 2
    assert world.init() == result(expected)
    assert world.add(held) is expected
    assert world.image() == before
    world.add(held)
    before = world.image()
    world.journal.refuse_next = [refusal]
    assert world.end(held, version=version) == result(expected)
    assert world.image() == before
    assert world.coordinator.completion.take() == []
    assert world.end(held, version=version).error is E.NONE
