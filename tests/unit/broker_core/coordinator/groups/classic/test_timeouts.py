"""Timeouts of the classic protocol: sessions, join and sync phases."""

from broker_core.coordinator.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, REBALANCE_MS, SESSION_MS, GroupWorld


def test_heartbeats_and_commits_extend_the_session(world: GroupWorld):
    (member,) = world.stable("a")
    for _ in range(3):
        world.pass_ms(SESSION_MS - 1)
        assert world.heartbeat(member, 1) is NONE
        world.pass_ms(SESSION_MS - 1)
        assert world.commit(generation_id=1, member_id=member) is NONE
    world.pass_ms(SESSION_MS)
    assert world.group().members == {}


def test_refused_commit_does_not_extend_the_session(world: GroupWorld):
    (member,) = world.stable("a")
    world.pass_ms(SESSION_MS - 1)
    assert world.commit(generation_id=7, member_id=member) is ErrorCode.ILLEGAL_GENERATION
    world.pass_ms(1)
    assert world.group().members == {}


def test_members_that_do_not_rejoin_in_time_are_removed(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    answer = world.join(leader)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        world.pass_ms(5_000)
        assert world.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_ms(4_999)
    assert answer.waits
    world.pass_ms(1)
    assert [member.member_id for member in answer.now.members] == [leader]
    assert world.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_longest_rebalance_timeout_bounds_the_join_phase(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.group().members[follower].rebalance_timeout_ms = 2 * REBALANCE_MS
    world.group().members[follower].session_timeout_ms = 3 * REBALANCE_MS
    world.heartbeat(follower, 2)
    answer = world.join(leader)
    world.pass_ms(2 * REBALANCE_MS - 1)
    assert answer.waits
    world.pass_ms(1)
    assert not answer.waits


def test_member_with_a_delayed_request_does_not_expire(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.group().members[follower].session_timeout_ms = 3 * REBALANCE_MS
    world.heartbeat(follower, 2)
    answer = world.join(leader)
    world.pass_ms(REBALANCE_MS - 1)
    assert answer.waits
    assert leader in world.group().members
    world.pass_ms(1)
    assert not answer.waits


def test_new_member_whose_join_is_delayed_too_long_is_removed(world: GroupWorld):
    (leader,) = world.stable("a")
    world.group().members[leader].rebalance_timeout_ms = 2 * NEW_MEMBER_JOIN_TIMEOUT_MS
    answer = world.join()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert answer.waits
        world.heartbeat(leader, 1)
        world.pass_ms(5_000)
    assert (answer.now.error, answer.now.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_members_that_never_sync_are_removed(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    waiting = world.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        assert waiting.waits
        world.heartbeat(leader, 3)
        world.pass_ms(5_000)
    assert waiting.now.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(world.group().members) == [follower]


def test_follower_that_never_syncs_is_removed_from_a_stable_group(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    world.sync(leader, 3)
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(leader, 3) is world.heartbeat(follower, 3) is NONE
        world.pass_ms(5_000)
    assert world.heartbeat(leader, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert follower not in world.group().members


def test_no_deadline_remains_when_all_members_have_left():
    world = GroupWorld(offsets_retention_check_interval_ms=10**9)
    members = world.stable("a", "b")
    world.join(requires_known_member_id=True)
    pending = next(iter(world.group().pending_joins))
    world.leave(*(LeavingMember(member) for member in (*members, pending)))
    assert world.coordinator.next_deadline_ms() == world.now_ms + 10**9
    assert world.group().state is GroupState.EMPTY


def test_empty_group_whose_record_is_refused_is_empty_in_memory(world: GroupWorld):
    (member,) = world.stable("a")
    world.journal.refuse_next.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.leave(LeavingMember(member))
    assert world.group().state is GroupState.EMPTY
    world.fail_over()
    assert world.heartbeat(member, 1) is NONE
    world.pass_ms(SESSION_MS)
    assert world.shard().recorded[GROUP].members == ()
