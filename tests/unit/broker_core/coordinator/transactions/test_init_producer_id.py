"""InitProducerId assigns identities, fences and rotates according to rules A.5 and KIP-360."""

import pytest

from broker_core.coordinator.transactions.messages import InitProducerId, ProducerIdResult
from broker_core.errors import ErrorCode
from broker_core.types import NEVER_TIMES_OUT_MS, ProducerIdentity, TransactionState
from tests.support.broker_core.transaction_world import ID, World

E = ErrorCode
LEVELS = (0, 1, 2)


def result(error: ErrorCode, identity: ProducerIdentity | tuple[int, int] = (-1, -1)) -> ProducerIdResult:
    return ProducerIdResult(error, *identity)


# Rule A.5/5.
def test_init_without_a_transactional_id_gets_a_new_producer_id_and_no_record(world: World) -> None:
    assert [world.init(None) for _ in range(2)] == [result(E.NONE, (4000, 0)), result(E.NONE, (4001, 0))]
    assert world.init(None, 17, 3) == result(E.NONE, (4002, 0))
    assert not world.journal.partitions


# Rules A.5/4, A.5/6, A.5/7, A.5/8, A.5/9 and A.11/7.
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerId("", 1000), E.INVALID_REQUEST),
        (InitProducerId(ID, 1000, 5, -1), E.INVALID_REQUEST),
        (InitProducerId(ID, 1000, -1, 5), E.INVALID_REQUEST),
        (InitProducerId(ID, 0), E.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerId(ID, -1), E.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerId(ID, 900_001), E.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerId(ID, 900_000), E.NONE),
        (InitProducerId(ID, 1000, enable_2pc=True), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerId(ID, 1000, keep_prepared=True), E.UNSUPPORTED_VERSION),
    ],
)
def test_stateless_refusals_of_init(request_: InitProducerId, error: ErrorCode, world: World) -> None:
    assert world.coordinator.init_producer_id(request_, world.now_ms).error is error


# Rule A.5 more/2.
def test_two_phase_commit_stores_no_timeout() -> None:
    world = World(transaction_two_phase_commit_enable=True)
    request = InitProducerId(ID, 0, enable_2pc=True)
    assert world.coordinator.init_producer_id(request, world.now_ms).error is E.NONE
    assert world.image().timeout_ms == NEVER_TIMES_OUT_MS


# Rules A.5/11, A.9/6 and A.14/4.
def test_missing_producer_id_block_returns_a_retriable_error(world: World) -> None:
    held = world.at(TransactionState.ONGOING, 32766)
    world.blocks_fail = True
    assert world.end(held) == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init() == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.image().identity == held
    world.put(world.image()._replace(state=TransactionState.COMPLETE_ABORT, partitions=frozenset()))
    assert world.init() == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init("another") == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init(None) == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert set(world.coordinator.images()) == {ID}


# Rules A.1/4 and A.5/12.
def test_refused_first_record_leaves_no_state(world: World) -> None:
    world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS]
    assert world.init() == result(E.COORDINATOR_NOT_AVAILABLE)
    assert world.coordinator.images() == {}
    assert world.init().error is E.NONE


# Rules A.5/16 and A.5/19.
@pytest.mark.parametrize("level", LEVELS)
def test_exhausted_epoch_rotates_and_the_lost_response_is_repeated(level: int) -> None:
    world = World(level)
    held = world.at(TransactionState.EMPTY, 32766)
    first = world.init(ID, *held)
    assert first == result(E.NONE, (4000, 0))
    assert world.image().previous_producer_id == held.producer_id
    assert world.init(ID, *held) == first


# Rule A.5/16.
def test_exhausted_epoch_rotates_for_a_new_producer(world: World) -> None:
    world.at(TransactionState.COMPLETE_COMMIT, 32767)
    assert world.init() == result(E.NONE, (4000, 0))


# Rules A.5/22, A.5/15, A.10/1 and A.10/2.
@pytest.mark.parametrize("level", LEVELS)
def test_init_with_an_open_transaction_fences_it_and_returns_a_retriable_error(level: int) -> None:
    world = World(level)
    held = world.identity()
    world.add(held)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    assert world.state() == "PrepareAbort"
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    end = order.end
    assert (end.commit, end.producer.producer_epoch, end.transaction_version) == (False, 1, 2 if level == 2 else 0)
    assert world.state() == "CompleteAbort"
    assert world.init() == result(E.NONE, (4000, 2))
    assert world.add(held) is E.PRODUCER_FENCED


# Rule A.10/4.
def test_unrecorded_fence_bumps_once_for_any_number_of_retries() -> None:
    for level in LEVELS:
        world = World(level)
        world.add(world.identity())
        world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER]
        assert world.init() == result(E.COORDINATOR_NOT_AVAILABLE)
        assert world.init() == result(E.NOT_COORDINATOR)
        assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
        assert world.image().producer_epoch == 1


# Rule A.10/1.
@pytest.mark.parametrize("level", [0, 1])
def test_fence_at_the_last_epoch_uses_the_fencing_epoch_and_then_rotates(level: int) -> None:
    world = World(level)
    world.at(TransactionState.ONGOING, 32766)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert order.end.producer.producer_epoch == 32767
    assert world.image().identity == (9, 32767)
    assert world.init() == result(E.NONE, (4000, 0))


# Rule A.10/3.
def test_fence_at_the_last_epoch_rotates_immediately_under_v2() -> None:
    world = World(2)
    held = world.at(TransactionState.ONGOING, 32766)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert order.end.producer == (9, 32767)
    assert world.image().identity == (4000, 0)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 0))
    assert world.init() == result(E.NONE, (4000, 1))
