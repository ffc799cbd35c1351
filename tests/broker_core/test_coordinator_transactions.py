"""The transaction coordinator answers and records as the rules say (facts A.5 to A.8, A.15, scenarios 4.2)."""

from dataclasses import replace

import pytest

from broker_core.coordinator.transaction_messages import InitProducerId, ProducerIdResult
from broker_core.coordinator.transaction_records import TransactionImage
from broker_core.coordinator.transaction_states import TransactionState
from broker_core.errors import ErrorCode
from broker_core.types import NEVER_TIMES_OUT_MS, ProducerIdentity, TopicPartition
from tests.broker_core.transaction_world import ID, T0, T1, World

E = ErrorCode
LEVELS = (0, 1, 2)


def result(error: ErrorCode, identity: ProducerIdentity | tuple[int, int] = (-1, -1)) -> ProducerIdResult:
    return ProducerIdResult(error, *identity)


def at(world: World, state: TransactionState, epoch: int, **fields: int) -> ProducerIdentity:
    """Put the id into a state at an epoch, as the journal would show it."""
    idle = state not in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)
    start_ms = -1 if state is TransactionState.EMPTY else world.now_ms
    partitions = frozenset() if idle else frozenset({T0})
    image = TransactionImage(9, epoch, 60_000, state, partitions, world.now_ms, start_ms, 9)
    return world.put(replace(image, **fields))  # type: ignore[arg-type]


# InitProducerId


@pytest.mark.parametrize("level", LEVELS)
def test_a_new_id_gets_epoch_0_and_then_1(level: int) -> None:
    world = World(level)
    assert world.init() == result(E.NONE, (4000, 0))
    assert world.init() == result(E.NONE, (4000, 1))
    assert [image.producer_epoch for image in world.history() if image] == [0, 1]


def test_no_transactional_id_gets_a_new_producer_id_each_time_and_no_record() -> None:
    world = World()
    assert [world.init(None) for _ in range(2)] == [result(E.NONE, (4000, 0)), result(E.NONE, (4001, 0))]
    assert world.init(None, 17, 3) == result(E.NONE, (4002, 0))
    assert not world.journal.partitions


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
def test_what_is_refused_without_looking_at_state(request_: InitProducerId, error: ErrorCode) -> None:
    world = World()
    assert world.coordinator.init_producer_id(request_, world.now_ms).error is error


def test_two_phase_commit_where_allowed_stores_no_timeout() -> None:
    world = World(transaction_two_phase_commit_enable=True)
    request = InitProducerId(ID, 0, enable_2pc=True)
    assert world.coordinator.init_producer_id(request, world.now_ms).error is E.NONE
    assert world.image().timeout_ms == NEVER_TIMES_OUT_MS


def test_a_partition_not_led_here_is_not_ours_to_answer() -> None:
    world = World()
    world.coordinator.resign(world.coordinator.partition_for(ID))
    assert world.init() == result(E.NOT_COORDINATOR)


def test_an_unknown_id_with_an_expectation_gets_a_new_producer_id() -> None:
    world = World()
    assert world.init(ID, 17, 3) == result(E.NONE, (4000, 0))


def test_without_a_producer_id_block_the_client_comes_again() -> None:
    world = World()
    held = at(world, TransactionState.ONGOING, 32766)
    world.blocks_fail = True
    assert world.end(held) == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init() == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.image().identity == held
    world.put(replace(world.image(), state=TransactionState.COMPLETE_ABORT, partitions=frozenset()))
    assert world.init() == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init("another") == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert world.init(None) == result(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert set(world.coordinator.images()) == {ID}


def test_a_refused_first_record_leaves_nothing_behind() -> None:
    world = World()
    world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS]
    assert world.init() == result(E.COORDINATOR_NOT_AVAILABLE)
    assert world.coordinator.images() == {}
    assert world.init().error is E.NONE


def test_a_lost_answer_is_given_again_without_a_bump() -> None:
    world = World()
    held = world.identity()
    first = world.init(ID, *held)
    assert first == result(E.NONE, (4000, 1))
    assert world.init(ID, *held) == first
    assert world.init(ID, *held) == first
    assert [image.producer_epoch for image in world.history() if image] == [0, 1, 1, 1]


def test_an_expectation_older_than_the_last_is_fenced() -> None:
    world = World()
    held = world.identity()
    world.init(ID, *held)
    world.init(ID, held.producer_id, 1)
    assert world.init(ID, *held) == result(E.PRODUCER_FENCED)


def test_another_producer_taking_over_fences_the_lost_answer() -> None:
    world = World()
    held = world.identity()
    world.init(ID, *held)
    world.identity()
    assert world.init(ID, *held) == result(E.PRODUCER_FENCED)


def test_a_lost_answer_does_not_outlive_a_failover() -> None:
    world = World()
    held = world.identity()
    world.init(ID, *held)
    world.fail_over()
    assert world.init(ID, *held) == result(E.PRODUCER_FENCED)


def test_an_expectation_of_a_foreign_producer_id_is_fenced() -> None:
    world = World()
    world.identity()
    assert world.init(ID, 17, 0) == result(E.PRODUCER_FENCED)


@pytest.mark.parametrize("level", LEVELS)
def test_an_exhausted_epoch_rotates_and_the_lost_answer_is_given_again(level: int) -> None:
    world = World(level)
    held = at(world, TransactionState.EMPTY, 32766)
    first = world.init(ID, *held)
    assert first == result(E.NONE, (4000, 0))
    assert world.image().previous_producer_id == held.producer_id
    assert world.init(ID, *held) == first


def test_an_exhausted_epoch_rotates_for_a_new_producer_too() -> None:
    world = World()
    at(world, TransactionState.COMPLETE_COMMIT, 32767)
    assert world.init() == result(E.NONE, (4000, 0))


def test_an_exhausted_epoch_with_another_expectation_is_an_internal_error() -> None:
    world = World()
    at(world, TransactionState.EMPTY, 32766)
    assert world.init(ID, 9, 7) == result(E.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("level", LEVELS)
def test_an_open_transaction_is_fenced_and_the_client_comes_again(level: int) -> None:
    world = World(level)
    held = world.identity()
    world.add(held)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    assert world.state() == "PrepareAbort"
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert (order.commit, order.producer_epoch, order.transaction_version) == (False, 1, 2 if level == 2 else 0)
    assert world.state() == "CompleteAbort"
    assert world.init() == result(E.NONE, (4000, 2))
    assert world.add(held) is E.PRODUCER_FENCED


def test_a_fence_that_is_not_recorded_bumps_once_however_often_it_is_tried() -> None:
    for level in LEVELS:
        world = World(level)
        world.add(world.identity())
        world.journal.refuse_next = [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER]
        assert world.init() == result(E.COORDINATOR_NOT_AVAILABLE)
        assert world.init() == result(E.NOT_COORDINATOR)
        assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
        assert world.image().producer_epoch == 1


@pytest.mark.parametrize("level", (0, 1))
def test_a_fence_at_the_last_epoch_uses_the_fencing_epoch_and_then_rotates(level: int) -> None:
    world = World(level)
    at(world, TransactionState.ONGOING, 32766)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert order.producer_epoch == 32767
    assert world.image().identity == (9, 32767)
    assert world.init() == result(E.NONE, (4000, 0))


def test_a_fence_at_the_last_epoch_rotates_at_once_under_v2() -> None:
    world = World(2)
    held = at(world, TransactionState.ONGOING, 32766)
    assert world.init() == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert (order.producer_id, order.producer_epoch) == (9, 32767)
    assert world.image().identity == (4000, 0)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 0))
    assert world.init() == result(E.NONE, (4000, 1))


# AddPartitionsToTxn


def test_partitions_begin_and_extend_a_transaction() -> None:
    world = World()
    held = world.identity()
    assert world.add(held, T0) is E.NONE
    began_ms = world.now_ms
    world.now_ms += 500
    assert world.add(held, T1) is E.NONE
    image = world.image()
    assert (image.partitions, image.start_ms, image.update_ms) == ({T0, T1}, began_ms, began_ms + 500)


def test_partitions_already_in_record_nothing() -> None:
    world = World()
    held = world.identity()
    world.add(held, T0, T1)
    before = len(world.history())
    assert world.add(held, T1) is E.NONE
    assert len(world.history()) == before


def test_a_completed_transaction_starts_the_next_from_nothing() -> None:
    world = World(1)
    held = world.identity()
    world.add(held, T0)
    world.end(held)
    world.run_markers()
    world.add(held, T1)
    assert world.image().partitions == {T1}


def test_adding_is_refused_as_the_rules_say() -> None:
    world = World()
    held = world.identity()
    assert world.coordinator.add_partitions(
        "", *held, [T0], client_transaction_version=0, now_ms=world.now_ms
    ) is E.INVALID_REQUEST
    assert world.coordinator.add_partitions(
        None, *held, [T0], client_transaction_version=0, now_ms=world.now_ms
    ) is E.INVALID_REQUEST
    assert world.coordinator.add_partitions(
        "who", *held, [T0], client_transaction_version=0, now_ms=world.now_ms
    ) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.add(ProducerIdentity(17, 0)) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.add(ProducerIdentity(4000, 1)) is E.PRODUCER_FENCED
    assert world.add(held) is E.NONE
    world.end(held)
    assert world.add(held) is E.CONCURRENT_TRANSACTIONS
    assert world.add(ProducerIdentity(17, 0)) is E.CONCURRENT_TRANSACTIONS  # pending is looked at first


def test_verifying_tells_each_partition_and_records_nothing() -> None:
    world = World()
    held = world.identity()
    verify = world.coordinator.verify_partitions
    assert verify(ID, *held, [T0]) == {T0: E.TRANSACTION_ABORTABLE}
    world.add(held, T0)
    before = len(world.history())
    assert verify(ID, *held, [T0, T1]) == {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}
    assert verify(ID, 17, 0, [T0]) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify("who", *held, [T0]) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify(ID, 4000, 7, [T0]) == {T0: E.PRODUCER_FENCED}
    assert verify(None, *held, [T0]) == {T0: E.INVALID_REQUEST}
    assert len(world.history()) == before
    world.end(held)
    assert verify(ID, 4000, 1, [T0]) == {T0: E.CONCURRENT_TRANSACTIONS}
    world.coordinator.resign(world.coordinator.partition_for(ID))
    assert verify(ID, *held, [T0]) == {T0: E.NOT_COORDINATOR}


# EndTxn


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_v1_end_keeps_the_epoch_and_may_be_repeated_blindly(level: int, commit: bool) -> None:
    world = World(level)
    held = world.identity()
    world.add(held, version=0)
    assert world.end(held, commit=commit, version=0) == result(E.NONE)
    assert world.end(held, commit=commit, version=0) == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert (order.commit, order.producer_epoch, order.transaction_version) == (commit, 0, 0)
    assert world.end(held, commit=commit, version=0) == result(E.NONE)
    assert world.end(held, commit=not commit, version=0) == result(E.INVALID_TXN_STATE)
    assert world.image().identity == held


def test_v1_end_is_refused_as_the_rules_say() -> None:
    world = World(1)
    held = world.identity()
    assert world.end(held) == result(E.INVALID_TXN_STATE)
    assert world.end(held, commit=False) == result(E.INVALID_TXN_STATE)
    assert world.end(ProducerIdentity(17, 0)) == result(E.INVALID_PRODUCER_ID_MAPPING)
    assert world.end(ProducerIdentity(4000, 1)) == result(E.PRODUCER_FENCED)
    for transactional_id, error in (("", E.INVALID_REQUEST), ("who", E.INVALID_PRODUCER_ID_MAPPING)):
        for version in (0, 2):
            answer = world.coordinator.end_transaction(
                transactional_id, *held, commit=True, client_transaction_version=version, now_ms=world.now_ms
            )
            assert answer == result(error)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_v2_end_moves_the_epoch_on_and_knows_its_retry(level: int, commit: bool) -> None:
    world = World(level)
    held = world.identity()
    world.add(held, version=2)
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))
    assert world.end(held, commit=commit, version=2) == result(E.CONCURRENT_TRANSACTIONS)
    (order,) = world.run_markers()
    assert (order.commit, order.producer_epoch, order.transaction_version) == (commit, 1, 2)
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))
    assert world.end(held, commit=not commit, version=2) == result(E.INVALID_TXN_STATE)
    world.fail_over()
    assert world.end(held, commit=commit, version=2) == result(E.NONE, (4000, 1))


def test_v2_end_without_a_transaction() -> None:
    world = World()
    held = world.identity()
    assert world.end(held) == result(E.INVALID_TXN_STATE)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 1))
    assert world.coordinator.take_markers() == []
    prepared, complete = world.history()[-2:]
    assert prepared is not None
    assert prepared.start_ms == world.now_ms
    assert complete is not None
    assert complete.state is TransactionState.COMPLETE_ABORT
    assert world.end(held, commit=False) == result(E.NONE, (4000, 1))  # a retry
    assert world.end(ProducerIdentity(4000, 1), commit=False) == result(E.NONE, (4000, 2))  # another one


def test_v2_commit_after_a_commit_with_the_new_epoch_is_no_retry() -> None:
    world = World()
    held = world.identity()
    world.add(held)
    following = ProducerIdentity(*world.end(held)[1:])
    world.run_markers()
    assert world.end(following) == result(E.INVALID_TXN_STATE)
    assert world.end(following, commit=False) == result(E.NONE, (4000, 2))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("failover", [False, True])
def test_v2_end_at_the_last_epoch_goes_on_with_a_new_producer_id(commit: bool, failover: bool) -> None:
    world = World()
    held = at(world, TransactionState.ONGOING, 32766)
    assert world.end(held, commit=commit) == result(E.NONE, (4000, 0))
    assert world.image().identity == (9, 32767)
    assert world.image().next_producer_id == 4000
    assert world.end(held, commit=commit) == result(E.CONCURRENT_TRANSACTIONS)
    if failover:
        world.fail_over()
    (order,) = world.run_markers()
    assert (order.producer_id, order.producer_epoch) == (9, 32767)
    image = world.image()
    assert (image.identity, image.previous_producer_id, image.next_producer_id) == ((4000, 0), 9, -1)
    if failover:
        world.fail_over()
    assert world.end(held, commit=commit) == result(E.NONE, (4000, 0))
    assert world.end(held, commit=not commit) == result(E.INVALID_TXN_STATE)
    assert world.add(ProducerIdentity(4000, 0)) is E.NONE
    assert world.end(held, commit=commit) == result(E.INVALID_PRODUCER_ID_MAPPING)


def test_v2_empty_abort_at_the_last_epoch_rotates_too() -> None:
    world = World()
    held = at(world, TransactionState.EMPTY, 32766)
    assert world.end(held, commit=False) == result(E.NONE, (4000, 0))
    assert world.image().identity == (4000, 0)


def test_the_fencing_epoch_is_never_told_to_a_client() -> None:
    world = World()
    at(world, TransactionState.COMPLETE_ABORT, 32767, client_transaction_version=2)
    assert world.end(ProducerIdentity(9, 32766), commit=False) == result(E.PRODUCER_FENCED)


# Refused records


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.POLICY_VIOLATION, E.POLICY_VIOLATION),
    ],
)
def test_a_refused_record_changes_nothing(version: int, refusal: ErrorCode, told: ErrorCode) -> None:
    world = World()
    held = world.identity()
    before = world.image()
    world.journal.refuse_next = [refusal] * 2
    assert world.init() == result(told)
    assert world.add(held) is told
    assert world.image() == before
    world.add(held)
    before = world.image()
    world.journal.refuse_next = [refusal]
    assert world.end(held, version=version) == result(told)
    assert world.image() == before
    assert world.coordinator.take_markers() == []
    assert world.end(held, version=version).error is E.NONE


def test_a_zombie_coordinator_is_told_that_it_is_none() -> None:
    world = World()
    held = world.identity()
    zombie = world.fail_over()
    now_ms = world.now_ms
    assert zombie.add_partitions(ID, *held, [T0], client_transaction_version=2, now_ms=now_ms) is E.NOT_COORDINATOR
    assert zombie.init_producer_id(InitProducerId(ID, 1000), now_ms) == result(E.NOT_COORDINATOR)
    assert world.add(held) is E.NONE


# Feature levels and mixed clients


def test_the_level_is_read_each_time_and_decides_the_value_version() -> None:
    world = World(0)
    world.identity()
    world.level = 1
    world.identity()
    world.level = 0
    world.identity()
    versions = [entry.value[1] for entries in world.journal.partitions.values() for entry in entries if entry.value]
    assert versions == [0, 1, 0]


def test_a_v2_transaction_outlives_a_downgrade() -> None:
    world = World(2)
    held = world.identity()
    world.add(held)
    world.end(held)
    world.level = 0
    world.fail_over()
    (order,) = world.run_markers()
    assert (order.producer_epoch, order.transaction_version) == (1, 2)
    assert world.image().client_transaction_version == 2
    assert world.end(held, version=2) == result(E.NONE, (4000, 1))


def test_clients_of_both_generations_share_an_id_one_after_the_other() -> None:
    world = World(2)
    held = world.identity()
    world.add(held, version=0)
    world.end(held, version=0)
    assert world.run_markers()[0].transaction_version == 0
    world.add(held, version=2)
    assert world.end(held, version=2) == result(E.NONE, (4000, 1))
    assert world.run_markers()[0].transaction_version == 2
    assert world.add(held, version=0) is E.PRODUCER_FENCED


def test_a_v2_zombie_is_not_told_that_a_v1_clients_commit_was_its_own() -> None:
    world = World(2)
    zombie = world.identity()
    held = world.identity()
    world.add(held, version=0)
    world.end(held, version=0)
    world.run_markers()
    assert world.state() == "CompleteCommit"
    assert world.end(zombie, version=2) == result(E.PRODUCER_FENCED)


def test_the_end_decides_which_generation_a_transaction_is_of() -> None:
    world = World(2)
    held = world.identity()
    world.add(held, version=2)
    world.end(held, version=0)
    (order,) = world.run_markers()
    assert (order.producer_epoch, order.transaction_version) == (0, 0)


def test_ids_live_in_the_partition_their_hash_names() -> None:
    world = World(partition_count=50)
    assert world.coordinator.partition_for("my-txn") == 45
    world.identity()
    assert list(world.journal.partitions) == [45]


def test_time_may_go_back_in_every_step() -> None:
    world = World()
    held = world.identity()
    for step in (
        lambda: world.add(held),
        lambda: world.add(held, T1, TopicPartition("u", 0)),
        lambda: world.end(held),
        world.run_markers,
        world.init,
    ):
        world.now_ms -= 1000
        step()
    assert world.state() == "Empty"
    assert world.image().producer_epoch == 2
