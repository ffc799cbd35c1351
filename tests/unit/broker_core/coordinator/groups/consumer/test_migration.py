"""Groups with members that change their protocol: conversions, deadlines, failover, refused records."""

import pytest

from broker_core.coordinator.groups.classic.records import read_assignment, read_subscription, write_assignment
from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.errors import DamageError, ErrorCode
from broker_core.types import TopicPartition
from tests.support.broker_core.consumer_group_world import LEAVE, LEAVE_FOR_A_WHILE, REVOCATION_MS, ConsumerWorld
from tests.support.broker_core.group_world import GROUP, REBALANCE_MS, SESSION_MS, T0, subscription

NONE = ErrorCode.NONE
ALL = {0, 1, 2, 3}


def assignment(*partitions: int) -> bytes:
    return write_assignment([TopicPartition("t", number) for number in partitions], 0)


def partitions(data: bytes) -> set[int]:
    return {partition for _, partition in read_assignment(data).partitions}


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld()


def enter_classic(world: ConsumerWorld, *assigned: int, **fields) -> str:
    """Enter a classic group as its only member, with these partitions."""
    joined = world.join(**fields).now
    instance = fields.get("group_instance_id")
    world.sync(
        joined.member_id,
        joined.generation_id,
        group_instance_id=instance,
        assignments={joined.member_id: assignment(*assigned)},
    )
    return joined.member_id


def test_embedded_protocol_is_read_and_written():
    assert read_subscription(subscription("t", "u")).topics == ("t", "u")
    owned = b"\0\3" + subscription("t")[2:] + assignment(0, 2)[2:-4] + b"\0\0\0\7" + b"\0\1r" + b"later versions"
    assert read_subscription(owned) == (3, ("t",), (T0, TopicPartition("t", 2)), "r")
    assert write_assignment([TopicPartition("t", 1), T0], 9) == bytes.fromhex(
        "0003 00000001 000174 00000002 00000000 00000001 ffffffff"
    )
    assert read_assignment(b"") == ((), False)
    assert read_assignment(assignment(1)[:-4] + b"\0\0\0\1x") == ((TopicPartition("t", 1),), True)
    for broken in (b"", b"\xff\xff", b"\0\0\0\0\0\1"):
        with pytest.raises(DamageError):
            read_subscription(broken)


# Rules E.8/3 and E.8 upgrade/4.
@pytest.mark.parametrize("fails_over", [False, True])
def test_upgraded_group_keeps_members_assignments_and_offsets(world: ConsumerWorld, fails_over: bool):
    world.commit(7, T0)
    member = enter_classic(world, *ALL, group_instance_id="i", session_timeout_ms=7_000)
    if fails_over:
        world.fail_over()
    epoch = world.enter("a").member_epoch
    assert epoch == 2
    assert (GROUP in world.shard().groups, GROUP in world.shard().recorded) == (False, False)
    if fails_over:
        world.fail_over()
    kept = world.consumers.members[member]
    assert kept.instance_id == "i"
    assert kept.subscription.topics == ("t",)
    assert kept.subscription.rebalance_timeout_ms == REBALANCE_MS
    assert kept.subscription.classic == (7_000, (("range", subscription("t")),))
    assert (kept.current.member_epoch, len(kept.current.assigned)) == (1, 4)
    assert world.fetch(T0) == 7
    assert world.heartbeat(member, 1, "i") is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(member, group_instance_id="i").now.generation_id == 2
    kept_partitions = partitions(world.sync(member, 2, group_instance_id="i").now.assignment)
    assert len(kept_partitions) == 2
    assert world.named(world.beat("a", epoch)) == {("t", number) for number in ALL - kept_partitions}


# Rule E.8 sync/5.
def test_classic_member_syncs_for_a_newer_target_only_when_it_revokes_for_it(world: ConsumerWorld):
    member = enter_classic(world, *ALL)
    world.enter("a")
    assert world.sync(member, 1).now.error is ErrorCode.REBALANCE_IN_PROGRESS
    # It has joined, with all partitions, and revokes two before it gets the newer generation.
    owning_all = b"\0\1" + subscription("t")[2:] + assignment(*ALL)[2:-4]
    assert world.join(member, protocols=(("range", owning_all),)).now.generation_id == 1
    synced = world.sync(member, 1).now
    assert (synced.error, len(partitions(synced.assignment))) == (NONE, 2)


# Rule E.8/4.
def test_waiting_members_of_an_upgraded_group_join_again(world: ConsumerWorld):
    first = enter_classic(world, *ALL)
    second = world.join()
    assert second.waits
    assert world.enter("a").error is NONE
    assert second.now.error is ErrorCode.REBALANCE_IN_PROGRESS
    members = [member for member in world.consumers.members if member != "a"]
    assert first in members
    assert len(members) == 2
    assert world.join(second.now.member_id).now.error is NONE


def test_waiting_sync_of_an_upgraded_group_is_answered(world: ConsumerWorld):
    enter_classic(world)
    other = world.join()
    leader = world.group().leader
    assert leader is not None
    world.join(leader)
    member, generation = other.now.member_id, other.now.generation_id
    waiting = world.sync(member, generation)
    assert waiting.waits
    world.enter("a")
    assert waiting.now.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(member).now.generation_id > generation


def test_group_in_its_first_rebalance_is_upgraded_without_assignments():
    world = ConsumerWorld(group_initial_rebalance_delay_ms=1000)
    waiting = world.join()
    assert world.enter("a").error is NONE
    assert waiting.now.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(waiting.now.member_id).now.error is NONE


def test_refused_upgrade_changes_nothing(world: ConsumerWorld):
    member = enter_classic(world, *ALL)
    waiting = world.join()
    world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.enter("a").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.waits
    assert world.group().members[member].assignment == assignment(*ALL)
    assert not world.shard().consumer_groups


# Rules E.7 protocol/1, E.7 protocol/2 and E.8/2.
@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_classic_join_replaces_an_empty_group(policy: str):
    world = ConsumerWorld(group_consumer_migration_policy=policy)
    world.enter("a")
    world.beat("a", LEAVE)
    assert GROUP in world.shard().consumer_groups
    assert world.join().now.error is NONE
    assert GROUP in world.shard().groups
    assert GROUP not in world.shard().consumer_groups


def test_size_limits_conversions():
    world = ConsumerWorld(group_consumer_max_size=0)
    enter_classic(world, *ALL)
    assert world.enter("a").error is ErrorCode.GROUP_ID_NOT_FOUND
    world = ConsumerWorld(group_max_size=1)
    world.enter("a")
    for _ in range(2):
        assert world.join().now.error is NONE
    world.beat("a", LEAVE)
    assert GROUP in world.shard().consumer_groups
    full = ConsumerWorld(group_consumer_max_size=1)
    full.enter("a")
    assert full.join().now.error is ErrorCode.GROUP_MAX_SIZE_REACHED


# Rules E.8 downgrade/5 and E.8/3.
@pytest.mark.parametrize("fails_over", [False, True])
def test_downgraded_group_has_the_last_target_and_rebalances(world: ConsumerWorld, fails_over: bool):
    epoch = world.enter("a").member_epoch
    world.commit(7, T0, member_id="a", generation_id=epoch, knows_member_epochs=True)
    member = world.join(group_instance_id="i").now.member_id
    assert world.beat("a", LEAVE).error is NONE
    recorded = world.shard().recorded[GROUP]
    assert (recorded.generation_id, recorded.protocol_name, recorded.leader) == (epoch + 1, "range", member)
    assert [len(partitions(each.assignment)) for each in recorded.members] == [2]
    assert world.group().state.value == "PreparingRebalance"
    if fails_over:
        world.fail_over()
        assert world.group().state.value == "Stable"
    assert not world.shard().consumer_groups
    assert world.fetch(T0) == 7
    joined = world.join(member, group_instance_id="i").now
    assert (joined.leader, joined.generation_id) == (member, epoch + 2)
    assert world.sync(member, epoch + 2, group_instance_id="i", assignments={member: b"x"}).now.assignment == b"x"
    world.pass_ms(SESSION_MS + 1)
    assert world.group().state.value == "Empty"


def test_refused_downgrade_is_tried_again(world: ConsumerWorld):
    world.enter("a")
    world.join()
    world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.beat("a", LEAVE).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(world.consumers.members) >= {"a"}
    assert world.beat("a", LEAVE).error is NONE
    assert world.group().state.value == "PreparingRebalance"


# Rules E.8/5 and E.8/6.
def test_static_member_changes_its_protocol_and_back(world: ConsumerWorld):
    classic = enter_classic(world, *ALL, group_instance_id="i")
    entered = world.enter("a", instance_id="i")
    assert world.named(entered) == {("t", number) for number in ALL}
    assert list(world.consumers.members) == ["a"]
    assert world.heartbeat(classic, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert world.enter("b", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    back = world.join(group_instance_id="i").now
    assert (back.error, back.generation_id) == (NONE, entered.member_epoch)
    assert world.group().state.value == "Stable"
    synced = world.sync(back.member_id, back.generation_id, group_instance_id="i").now
    assert (synced.error, partitions(synced.assignment)) == (NONE, ALL)
    assert world.heartbeat(back.member_id, back.generation_id, "i") is NONE
    world.fail_over()
    assert world.heartbeat(back.member_id, back.generation_id, "i") is NONE


def test_replacement_with_another_subscription_rebalances_the_downgraded_group(world: ConsumerWorld):
    world.enter("a", instance_id="i")
    back = world.join(group_instance_id="i", protocols=(("range", subscription("u")),)).now
    assert back.error is NONE
    assert world.group().state.value == "PreparingRebalance"
    assert list(world.group().members) == [back.member_id]


def test_classic_static_member_takes_the_place_of_an_absent_one(world: ConsumerWorld):
    other = world.enter("other").member_epoch
    epoch = world.enter("a", instance_id="i").member_epoch
    world.settle_members(a=epoch, other=other)
    assert world.beat("a", LEAVE_FOR_A_WHILE, instance_id="i").error is NONE
    joined = world.join(group_instance_id="i").now
    assert joined.error is NONE
    assert set(world.consumers.members) == {"other", joined.member_id}
    synced = world.sync(joined.member_id, joined.generation_id, group_instance_id="i").now
    assert len(partitions(synced.assignment)) == 2


# Rule E.8 leave/3.
@pytest.mark.parametrize("fails_over", [False, True])
def test_silent_classic_member_is_removed_after_its_session(world: ConsumerWorld, fails_over: bool):
    enter_classic(world, *ALL, session_timeout_ms=7_000)
    epoch = world.enter("a", rebalance_timeout_ms=10**6).member_epoch
    session_ms = 7_000
    if fails_over:
        world.fail_over()
        session_ms = world.config.group_consumer_session_timeout_ms
    world.pass_ms(session_ms - 1)
    assert len(world.consumers.members) == 2
    world.beat("a", epoch)
    world.pass_ms(2)
    assert list(world.consumers.members) == ["a"]


# Rule E.8 leave/4.
def test_classic_member_must_join_after_it_was_asked(world: ConsumerWorld):
    member = enter_classic(world, *ALL, rebalance_timeout_ms=5_000)
    world.enter("a")
    assert world.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_ms(3_000)
    assert world.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_ms(2_001)
    assert list(world.consumers.members) == ["a"]


def test_classic_member_must_sync_after_it_joined(world: ConsumerWorld):
    world.enter("a")
    joined = world.join(rebalance_timeout_ms=5_000).now
    world.pass_ms(3_000)
    assert world.heartbeat(joined.member_id, joined.generation_id) is NONE
    world.pass_ms(2_001)
    assert list(world.consumers.members) == ["a"]


def test_classic_member_that_joins_and_syncs_stays(world: ConsumerWorld):
    world.enter("a")
    joined = world.join(rebalance_timeout_ms=5_000).now
    world.pass_ms(4_999)
    assert world.sync(joined.member_id, joined.generation_id).now.error is NONE
    world.pass_ms(SESSION_MS - 1)
    assert joined.member_id in world.consumers.members
    assert world.heartbeat(joined.member_id, joined.generation_id) is NONE


def test_member_that_changes_to_the_consumer_protocol_has_no_classic_deadlines(world: ConsumerWorld):
    world.enter("a", rebalance_timeout_ms=REVOCATION_MS)
    member = world.join(rebalance_timeout_ms=5_000).now.member_id
    assert world.enter(member).error is NONE
    world.pass_ms(20_000)
    assert member in world.consumers.members


def test_expired_consumer_member_leaves_the_group_to_the_classic_protocol(world: ConsumerWorld):
    world.enter("a")
    joined = world.join(session_timeout_ms=10**6).now
    assert world.sync(joined.member_id, joined.generation_id).now.error is NONE
    world.pass_ms(world.config.group_consumer_session_timeout_ms + 1)
    assert list(world.group().members) == [joined.member_id]


def test_leave_of_members_that_cannot_be_recorded_is_refused(world: ConsumerWorld):
    world.enter("a")
    member = world.join().now.member_id
    world.journal.refuse_next = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.leave(LeavingMember(member), LeavingMember("x")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member in world.consumers.members
