"""The transaction coordinator answers and records as the rules say (rules A.6 to A.9, A.15)."""

import pytest

from broker_core.coordinator.transactions.messages import ProducerIdResult
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TransactionState
from tests.support.broker_core.transaction_world import T0, T1, World

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


# Rules A.6/1, A.8 V1/1 and A.8 V2/1.
@pytest.mark.parametrize("name", ["", None])
def test_request_without_a_transactional_id_is_invalid(world: World, held: ProducerIdentity, name: str | None) -> None:
    coordinator = world.coordinator
    for version in (0, 2):
        asked = {"client_transaction_version": version, "now_ms": world.now_ms}
        assert coordinator.add_partitions(name, held, [T0], **asked) is E.INVALID_REQUEST
        assert coordinator.end_transaction(name, held, commit=True, **asked) == result(E.INVALID_REQUEST)


# EndTxn


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
