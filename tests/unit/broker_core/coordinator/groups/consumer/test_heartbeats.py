"""Consumer groups (KIP-848) over time: sessions, revocations, refused records, new leaders, changing topics."""

import pytest

from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.timers import TimerKey, TimerKind
from broker_core.errors import ErrorCode
from tests.support.broker_core.consumer_group_world import (
    LEAVE,
    LEAVE_FOR_A_WHILE,
    REVOCATION_MS,
    SESSION_MS,
    ConsumerWorld,
)
from tests.support.broker_core.group_world import GROUP, NONE, T0, U0

ALL = {("t", number) for number in range(4)}


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def test_heartbeats_that_change_nothing_write_nothing(world: ConsumerWorld):
    epoch = world.enter("a").member_epoch
    written = len(world.journal.partitions[0])
    for _ in range(3):
        world.beat("a", epoch)
    assert len(world.journal.partitions[0]) == written


def test_new_coordinator_resumes_the_state_of_the_old_one(world: ConsumerWorld):
    epoch = world.enter("a", rebalance_timeout_ms=1000).member_epoch
    world.enter("b", "t", "u", regex="u.*", instance_id="one", rack_id="r", server_assignor="range")
    world.beat("a", epoch, owned=ALL)
    before = world.consumers
    world.fail_over()
    after = world.consumers
    for fact in ("epoch", "target_epoch", "members", "targets", "regexes", "holders", "static_members"):
        assert getattr(after, fact) == getattr(before, fact), fact
    assert after.members["a"].current.state is MemberState.UNREVOKED
    # The revocation timeout and the sessions start again with the new leader.
    world.pass_ms(1000)
    assert "a" not in world.consumers.members
    world.pass_ms(SESSION_MS)
    assert not world.consumers.members


def test_former_coordinator_is_refused_by_the_journal(world: ConsumerWorld):
    epoch = world.enter("a").member_epoch
    old = world.fail_over()
    world.coordinator = old
    assert world.beat("a", epoch, topics=("u",)).error is ErrorCode.NOT_COORDINATOR
    assert world.enter("b").error is ErrorCode.NOT_COORDINATOR
    assert world.beat("a", LEAVE).error is ErrorCode.NOT_COORDINATOR
    assert world.consumers.members.keys() == {"a"}


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_unrecorded_change_has_no_effect(world: ConsumerWorld, refusal: ErrorCode):
    epoch = world.enter("a").member_epoch
    before = world.consumers.copy()
    for attempt in (
        lambda: world.enter("b"),
        lambda: world.beat("a", epoch, topics=("u",)),
        lambda: world.beat("a", LEAVE),
    ):
        world.journal.refuse_next = [refusal]
        assert attempt().error is not NONE
        assert vars(world.consumers) | {"seen_topics_version": 0} == vars(before) | {"seen_topics_version": 0}
    assert world.named(world.enter("b")) == set()


def test_session_expiry_is_postponed_while_nothing_can_be_recorded(world: ConsumerWorld):
    world.enter("a")
    world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.pass_ms(SESSION_MS)
    assert world.consumers.members.keys() == {"a"}
    world.pass_ms(SESSION_MS)
    assert not world.consumers.members


def test_resignation_stops_the_timers(world: ConsumerWorld):
    world.enter("a")
    world.coordinator.resign(0)
    world.pass_ms(10 * SESSION_MS)
    assert world.beat("a", 1).error is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.describe_consumer_group(GROUP).error is ErrorCode.NOT_COORDINATOR


def test_group_size_is_limited():
    world = ConsumerWorld(group_consumer_max_size=2)
    epoch = world.enter("a", instance_id="one").member_epoch
    world.enter("b")
    assert world.enter("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.enter("b").error is NONE
    world.beat("a", LEAVE_FOR_A_WHILE, instance_id="one")
    assert world.enter("a2", instance_id="one").error is NONE
    assert world.consumers.epoch.epoch == epoch + 1


def test_assignment_is_kept_for_its_interval():
    world = ConsumerWorld(group_consumer_assignment_interval_ms=1000)
    epoch = world.enter("a").member_epoch
    world.enter("b")
    assert world.consumers.state.value == "Assigning"
    assert world.beat("a", epoch, owned=ALL).assigned is None
    world.pass_ms(1000)
    assert world.named(world.beat("a", epoch, owned=ALL)) == {("t", 0), ("t", 1)}


def test_members_follow_topics_that_grow_vanish_and_are_recreated(world: ConsumerWorld):
    epoch = world.enter("a", "t", "later").member_epoch
    world.topics.make("unrelated", 1)
    assert world.beat("a", epoch).member_epoch == epoch
    world.topics.grow("t", 5)
    assert world.named(world.beat("a", epoch, owned=ALL)) == ALL | {("t", 4)}
    world.topics.make("later", 1)
    grown = world.beat("a", epoch + 1)
    assert world.named(grown) == ALL | {("t", 4), ("later", 0)}
    world.topics.delete("t")
    assert world.named(world.beat("a", epoch + 2)) == {("later", 0)}
    assert world.beat("a", epoch + 2, owned={("later", 0)}).member_epoch == epoch + 3
    world.topics.make("t", 1)
    assert world.named(world.beat("a", epoch + 3)) == {("later", 0), ("t", 0)}


def test_regular_expressions_follow_existing_topics(world: ConsumerWorld):
    epoch = world.enter("a", regex="new-.*").member_epoch
    world.topics.make("new-1", 1)
    assert world.named(world.beat("a", epoch)) == ALL | {("new-1", 0)}
    world.topics.make("renew-1", 1)
    assert world.beat("a", epoch + 1).assigned is None
    world.topics.delete("new-1")
    assert world.named(world.beat("a", epoch + 1)) == ALL
    assert world.consumers.regexes.keys() == {"new-.*"}
    world.beat("a", epoch + 1, regex="")
    assert not world.consumers.regexes
    assert world.enter("b", regex="new-(").error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_changed_member_metadata_is_recorded_without_a_new_epoch(world: ConsumerWorld):
    epoch = world.enter("a").member_epoch
    assert world.beat("a", epoch, rack_id="r", client_id="other").member_epoch == epoch
    world.fail_over()
    subscription = world.consumers.members["a"].subscription
    assert (subscription.rack_id, subscription.client_id) == ("r", "other")


def test_static_member_that_leaves_while_revoking_frees_its_partitions(world: ConsumerWorld):
    epoch = world.enter("a", instance_id="one").member_epoch
    waiting = world.enter("b").member_epoch
    world.beat("a", epoch, instance_id="one", owned=ALL)
    world.beat("a", LEAVE_FOR_A_WHILE, instance_id="one")
    assert world.named(world.beat("b", waiting)) == {("t", 2), ("t", 3)}
    world.pass_ms(REVOCATION_MS - SESSION_MS)
    assert world.named(world.enter("a2", instance_id="one")) == {("t", 0), ("t", 1)}


def test_leave_group_request_accepts_members_and_instances(world: ConsumerWorld):
    world.enter("a", instance_id="one")
    world.enter("b")
    leavers = (
        LeavingMember("stranger"),
        LeavingMember("b", "no-such"),
        LeavingMember("b", "one"),
        LeavingMember("", "one"),
        LeavingMember("b"),
    )
    assert [error for _, error in world.leave(*leavers).members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        NONE,
        NONE,
    ]
    assert not world.consumers.members


def test_group_that_cannot_be_converted_to_classic_is_unchanged(world: ConsumerWorld):
    world.enter("a")
    world.beat("a", LEAVE)
    world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.join().now.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.consumers.state.value == "Empty"


def test_deleted_group_leaves_no_state(world: ConsumerWorld):
    epoch = world.enter("a", regex="u").member_epoch
    world.commit(7, T0, generation_id=epoch, member_id="a", knows_member_epochs=True)
    assert world.coordinator.delete_groups([GROUP], world.now_ms) == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    world.beat("a", LEAVE)
    assert world.coordinator.delete_groups([GROUP], world.now_ms) == {GROUP: NONE}
    latest = {entry.key: entry.value for entry in world.journal.partitions[0]}
    assert set(latest.values()) == {None}
    world.fail_over()
    assert world.coordinator.delete_groups([GROUP], world.now_ms) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}


def test_unread_offsets_expire_followed_by_the_empty_group():
    world = ConsumerWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    epoch = world.enter("a").member_epoch
    for partition in (T0, U0):
        world.commit(7, partition, generation_id=epoch, member_id="a", knows_member_epochs=True)
    for _ in range(3):
        world.pass_ms(30_000)
        world.beat("a", epoch)
    assert (world.fetch(T0), world.fetch(U0)) == (7, -1)
    world.beat("a", LEAVE)
    world.pass_ms(2000)
    assert world.fetch(T0) == -1
    assert not world.shard().consumer_groups
    world.fail_over()
    assert not world.shard().consumer_groups


def test_each_revocation_has_its_own_timeout(world: ConsumerWorld):
    epoch = world.enter("a", rebalance_timeout_ms=1000).member_epoch
    world.enter("b")
    world.beat("a", epoch, owned=ALL)
    world.pass_ms(900)
    assert world.beat("a", epoch, owned={("t", 0), ("t", 1)}).member_epoch == epoch + 1
    world.enter("c")
    world.enter("d")
    assert world.named(world.beat("a", epoch + 1, owned={("t", 0), ("t", 1)})) == {("t", 0)}
    world.pass_ms(900)
    assert world.beat("a", epoch + 1, owned={("t", 0)}).error is NONE


def test_assignor_is_chosen_by_majority(world: ConsumerWorld):
    epoch = world.enter("a", "t", "u", server_assignor="range").member_epoch
    world.enter("b", "t", "u", server_assignor="range")
    world.enter("c", "t", server_assignor="uniform")
    assert world.consumers.assignor == "range"
    before = world.consumers.epoch.epoch
    world.beat("a", epoch, server_assignor="uniform")
    assert (world.consumers.assignor, world.consumers.epoch.epoch) == ("uniform", before + 1)


def test_timers_of_a_replaced_static_member_stop(world: ConsumerWorld):
    epoch = world.enter("a", instance_id="one").member_epoch
    world.pass_ms(SESSION_MS - 1)
    world.beat("a", LEAVE_FOR_A_WHILE, instance_id="one")
    assert world.enter("b", instance_id="one").member_epoch == epoch
    world.pass_ms(2)
    assert world.consumers.epoch.epoch == epoch
    world.beat("b", LEAVE, instance_id="one")
    assert world.coordinator.delete_groups([GROUP], world.now_ms) == {GROUP: NONE}
    assert world.coordinator.next_deadline_ms() == world.coordinator._timers.deadline_ms(TimerKey(TimerKind.EXPIRY))
