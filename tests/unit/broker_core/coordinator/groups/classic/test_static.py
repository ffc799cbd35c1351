"""A member with an instance id keeps its place across a restart (KIP-345, KIP-814)."""

import pytest

from broker_core.coordinator.groups.classic.requests import JoinResult, LeavingMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, REBALANCE_MS, SESSION_MS, GroupWorld, subscription

RANGE = ("range", subscription("t"))
STICKY = ("sticky", b"s")


def two_instances(world: GroupWorld) -> tuple[str, str]:
    """Settle a group with instances i and j; i leads generation 2."""
    one = world.join(group_instance_id="i").now.member_id
    answer = world.join(group_instance_id="j")
    world.join(one, group_instance_id="i")
    two = answer.now.member_id
    world.settle(2, {one: b"I", two: b"J"})
    return one, two


@pytest.mark.parametrize("can_skip_assignment", [False, True])
def test_rejoining_static_follower_keeps_its_assignment(can_skip_assignment: bool, world: GroupWorld):
    leader, follower = two_instances(world)
    back = world.join(group_instance_id="j", can_skip_assignment=can_skip_assignment).now
    assert (back.generation_id, back.leader, back.members, back.skip_assignment) == (2, leader, (), False)
    assert back.member_id != follower
    assert world.group().state is GroupState.STABLE
    assert world.sync(back.member_id, 2, group_instance_id="j").now.assignment == b"J"
    assert world.heartbeat(leader, 2, "i") is NONE


def test_rejoining_static_leader_skips_assignment_when_it_can(world: GroupWorld):
    two_instances(world)
    back = world.join(group_instance_id="i", can_skip_assignment=True).now
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_rejoining_static_leader_of_an_old_version_is_not_named_leader(world: GroupWorld):
    leader, _ = two_instances(world)
    back = world.join(group_instance_id="i").now
    assert (back.leader, back.skip_assignment, back.members) == (leader, False, ())
    assert world.group().leader == back.member_id


@pytest.mark.parametrize("request_name", ["join", "sync", "heartbeat", "commit", "txn_commit", "leave"])
def test_replaced_static_member_is_fenced(request_name: str, world: GroupWorld):
    old, _ = two_instances(world)
    world.join(group_instance_id="i")
    fields = {"member_id": old, "group_instance_id": "i", "generation_id": 2}
    verdicts = {
        "join": lambda: world.join(old, group_instance_id="i").now.error,
        "sync": lambda: world.sync(old, 2, group_instance_id="i").now.error,
        "heartbeat": lambda: world.heartbeat(old, 2, "i"),
        "commit": lambda: world.commit(**fields),
        "txn_commit": lambda: world.txn_commit(**fields),
        "leave": lambda: world.leave(LeavingMember(old, "i")).members[0][1],
    }
    assert verdicts[request_name]() is ErrorCode.FENCED_INSTANCE_ID


def test_new_member_id_survives_failover(world: GroupWorld):
    two_instances(world)
    back = world.join(group_instance_id="j").now
    assert [member.member_id for member in world.shard().recorded[GROUP].members][1] == back.member_id
    world.fail_over()
    assert world.sync(back.member_id, 2, group_instance_id="j").now.assignment == b"J"


def test_static_rejoin_before_the_first_sync_resets_the_sync_deadline(world: GroupWorld):
    leader, follower = two_instances(world)
    world.join(leader, group_instance_id="i")
    world.join(follower, group_instance_id="j")
    world.sync(leader, 3, group_instance_id="i")
    assert world.group().pending_syncs == {follower}
    back = world.join(group_instance_id="j").now
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_ms(5_000)
        assert world.heartbeat(leader, 3, "i") is world.heartbeat(back.member_id, 3, "j") is NONE


def test_static_rejoin_that_cannot_be_recorded_changes_nothing(world: GroupWorld):
    leader, follower = two_instances(world)
    world.journal.refuse_next.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused = world.join(group_instance_id="j").now
    assert refused == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert world.heartbeat(follower, 2, "j") is NONE
    assert list(world.group().members) == [leader, follower]


def test_static_rejoin_with_another_protocol_rebalances(world: GroupWorld):
    joined = world.join(group_instance_id="i", protocols=(RANGE, STICKY)).now
    world.settle(1, {joined.member_id: b"I"})
    back = world.join(group_instance_id="i", protocols=(STICKY, RANGE)).now
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_static_rejoin_between_join_and_sync_rebalances(world: GroupWorld):
    leader, follower = two_instances(world)
    world.join(leader, group_instance_id="i")
    world.join(follower, group_instance_id="j")
    parked = world.sync(follower, 3, group_instance_id="j")
    back = world.join(group_instance_id="j")
    assert parked.now.error is ErrorCode.FENCED_INSTANCE_ID
    assert back.waits
    assert world.join(leader, group_instance_id="i").now.generation_id == back.now.generation_id == 4


def test_static_rejoin_during_a_join_phase_replaces_the_delayed_join(world: GroupWorld):
    leader, follower = two_instances(world)
    parked = world.join(leader, group_instance_id="i")
    back = world.join(group_instance_id="i")
    assert parked.now == JoinResult(ErrorCode.FENCED_INSTANCE_ID, leader)
    assert back.waits
    world.join(follower, group_instance_id="j")
    assert (back.now.generation_id, back.now.leader) == (3, back.now.member_id)


def test_absent_static_member_keeps_its_place_until_its_session_ends(world: GroupWorld):
    leader, follower = two_instances(world)
    answer = world.join(leader, group_instance_id="i", rebalance_timeout_ms=2_000)
    world.group().members[follower].rebalance_timeout_ms = 2_000
    world.pass_ms(SESSION_MS - 1)
    assert answer.waits
    world.pass_ms(1)
    assert [member.member_id for member in answer.now.members] == [leader]


def test_static_member_that_misses_a_join_phase_stays_in_the_generation(world: GroupWorld):
    one = world.join(group_instance_id="i", rebalance_timeout_ms=2_000).now.member_id
    world.settle(1, {one: b"I"})
    answer = world.join(rebalance_timeout_ms=2_000)
    world.pass_ms(2_000)
    assert (answer.now.leader, len(answer.now.members)) == (answer.now.member_id, 2)
    assert world.heartbeat(one, 2, "i") is NONE


def test_join_phase_without_joins_is_extended_while_static_members_remain(world: GroupWorld):
    leader, follower = two_instances(world)
    for member in world.group().members.values():
        member.rebalance_timeout_ms = 1_000
    world.leave(LeavingMember(group_instance_id="j"))
    world.pass_ms(5_000)
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.join(leader, group_instance_id="i").now.generation_id == 3
    assert follower not in world.group().members


def test_administrator_removes_members_by_instance_id(world: GroupWorld):
    _, follower = two_instances(world)
    result = world.leave(LeavingMember(group_instance_id="j"), LeavingMember(group_instance_id="x"), LeavingMember())
    assert result.members == (
        (LeavingMember("", "j"), NONE),
        (LeavingMember("", "x"), ErrorCode.UNKNOWN_MEMBER_ID),
        (LeavingMember("", None), ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert follower not in world.group().members


@pytest.mark.parametrize(
    ("instance", "error"),
    [("i", NONE), ("j", ErrorCode.FENCED_INSTANCE_ID), ("x", ErrorCode.UNKNOWN_MEMBER_ID), (None, NONE)],
)
def test_instance_id_must_match_the_member(instance: str | None, error: ErrorCode, world: GroupWorld):
    leader, _ = two_instances(world)
    assert world.heartbeat(leader, 2, instance) is error
