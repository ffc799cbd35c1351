"""Members join and leave: rejections, the leader, the chosen protocol, the end of the join phase."""

import pytest

from broker_core.coordinator.groups.classic.requests import (
    JoinedMember,
    JoinGroup,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncResult,
)
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, REBALANCE_MS, SESSION_MS, GroupWorld, subscription

RANGE = ("range", subscription("t"))
STICKY = ("sticky", b"s")


def state(world: GroupWorld) -> GroupState:
    return world.group().state


def test_first_member_leads_its_group(world: GroupWorld):
    joined = world.join().now
    assert (joined.error, joined.member_id, joined.leader, joined.generation_id) == (NONE, "c-1", "c-1", 1)
    assert (joined.protocol_type, joined.protocol_name, joined.skip_assignment) == ("consumer", "range", False)
    assert joined.members == (JoinedMember("c-1", None, RANGE[1]),)
    assert state(world) is GroupState.COMPLETING_REBALANCE
    assert world.heartbeat("c-1", 1) is NONE
    assert world.sync("c-1", 1, assignments={"c-1": b"all"}).now == SyncResult(NONE, "consumer", "range", b"all")
    assert state(world) is GroupState.STABLE


def test_member_omitted_by_the_leader_gets_no_assignment_and_an_unknown_one_is_dropped(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    world.sync(leader, 3, assignments={leader: b"A", "stranger": b"X"})
    assert world.sync(follower, 3).now == SyncResult(NONE, "consumer", "range", b"")
    assert [member.member_id for member in world.shard().recorded[GROUP].members] == [leader, follower]


def test_new_client_receives_its_member_id_first(world: GroupWorld):
    rejection = world.join(requires_known_member_id=True).now
    assert (rejection.error, rejection.member_id, rejection.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1", -1)
    assert world.group().members == {}
    assert world.sync("c-1", 0).now.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join("c-1", requires_known_member_id=True).now.error is NONE


def test_rebalance_waits_for_a_client_that_received_its_member_id(world: GroupWorld):
    (first,) = world.stable("a")
    rejection = world.join(requires_known_member_id=True).now
    assert state(world) is GroupState.STABLE
    again = world.join(first)
    assert again.waits
    assert world.join(rejection.member_id).now.generation_id == again.now.generation_id == 2


def test_pending_member_is_removed_after_its_session(world: GroupWorld):
    (first,) = world.stable("a")
    world.join(requires_known_member_id=True)
    again = world.join(first)
    world.pass_ms(SESSION_MS - 1)
    assert again.waits
    world.pass_ms(1)
    assert again.now.generation_id == 2
    assert world.group().pending_joins == set()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 6_000}, NONE),
        ({"session_timeout_ms": 1_800_000}, NONE),
    ],
)
def test_join_to_an_empty_group_is_validated(fields: dict[str, object], error: ErrorCode):
    answer = GroupWorld().join(**fields)
    assert answer.now.error is error
    if error is not NONE:
        assert (answer.now.member_id, answer.now.generation_id) == (fields.get("member_id", ""), -1)


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": (STICKY,)}, {"protocols": ()}])
def test_joining_member_must_match_the_protocols_of_the_group(fields: dict[str, object], world: GroupWorld):
    world.stable("a")
    assert world.join(**fields).now.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(world) is GroupState.STABLE


def test_most_preferred_common_protocol_is_selected():
    world = GroupWorld(group_initial_rebalance_delay_ms=10)
    votes = [(("only-mine", b""), STICKY, RANGE), (RANGE, STICKY), (STICKY, RANGE)]
    answers = [world.join(protocols=protocols) for protocols in votes]
    world.pass_ms(20)
    assert {answer.now.protocol_name for answer in answers} == {"sticky"}
    assert [member.metadata for member in answers[0].now.members] == [b"s"] * 3


@pytest.mark.parametrize(
    ("member", "generation", "claims", "error"),
    [
        ("c-1", 0, {}, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c-1", 1, {"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c-1", 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("c-1", 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("c-1", 1, {"protocol_type": "consumer", "protocol_name": "range"}, NONE),
    ],
)
def test_sync_is_validated(member: str, generation: int, claims: dict[str, str], error: ErrorCode, world: GroupWorld):
    world.join()
    assert world.sync(member, generation, **claims).now.error is error


def test_requests_to_an_unknown_group_are_refused(world: GroupWorld):
    assert world.sync("c-1", 1).now.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("c-1", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(LeavingMember("c-1")) == LeaveResult(
        NONE, ((LeavingMember("c-1", None), ErrorCode.UNKNOWN_MEMBER_ID),)
    )
    world.commit()
    assert world.sync("c-1", 1).now.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("c-1", 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [("c-1", 1, NONE), ("c-1", 0, ErrorCode.ILLEGAL_GENERATION), ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_heartbeat_is_validated(member: str, generation: int, error: ErrorCode, world: GroupWorld):
    world.join()
    assert world.heartbeat(member, generation) is error


def test_batch_of_leaving_members_triggers_one_rebalance(world: GroupWorld):
    members = world.stable("a", "b", "c")
    result = world.leave(LeavingMember(members[0]), LeavingMember("x"), LeavingMember(members[1]))
    assert [error for _, error in result.members] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE]
    assert world.join(members[2]).now.generation_id == world.group().generation_id == 3


def test_leaving_completes_a_rebalance_that_waited_for_the_member(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    answer = world.join(leader)
    assert answer.waits
    world.leave(LeavingMember(follower))
    assert [member.member_id for member in answer.now.members] == [leader]


def test_leaving_member_with_a_delayed_request_is_answered(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    join = world.join(leader)
    world.leave(LeavingMember(leader))
    assert (join.now.error, join.now.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    world.join(follower)
    joined = world.join()
    world.join(follower)
    sync = world.sync(joined.now.member_id, joined.now.generation_id)
    world.leave(LeavingMember(joined.now.member_id))
    assert sync.now.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_may_leave_without_a_rebalance(world: GroupWorld):
    world.stable("a")
    rejection = world.join(requires_known_member_id=True).now
    assert world.leave(LeavingMember(rejection.member_id)).members[0][1] is NONE
    assert (state(world), world.group().pending_joins) == (GroupState.STABLE, set())
    rejection = world.join(requires_known_member_id=True).now
    assert world.leave(LeavingMember(rejection.member_id, "i")).members[0][1] is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_has_a_maximum_size():
    world = GroupWorld(group_max_size=2)
    leader, follower = world.stable("a", "b")
    refused = world.join().now
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert state(world) is GroupState.STABLE
    world.join(leader)
    third = world.join()
    assert third.waits
    # Waiting members count towards the maximum size: no slot is left for the old follower, which is removed.
    assert world.join(follower).now.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert third.now.error is NONE
    assert set(world.group().members) == {leader, third.now.member_id}


def test_repeated_join_replaces_the_delayed_one(world: GroupWorld):
    leader, _ = world.stable("a", "b")
    first, second = world.join(leader), world.join(leader)
    assert first.now.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits


def test_initial_rebalance_waits_for_more_members_up_to_a_limit():
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    answers = [world.join(rebalance_timeout_ms=7_000)]
    world.pass_ms(2_999)
    assert answers[0].waits
    answers.append(world.join(rebalance_timeout_ms=7_000))
    world.pass_ms(3_000)
    answers.append(world.join(rebalance_timeout_ms=7_000))
    assert all(answer.waits for answer in answers)
    world.pass_ms(1_001)
    assert [answer.now.generation_id for answer in answers] == [1, 1, 1]


def test_initial_rebalance_waits_once_for_a_single_member():
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    answer = world.join()
    world.pass_ms(3_000)
    assert answer.now.generation_id == 1


def test_assignment_that_cannot_be_recorded_triggers_a_rebalance(world: GroupWorld):
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    waiting = world.sync(follower, 3)
    world.journal.refuse_next.append(ErrorCode.KAFKA_STORAGE_ERROR)
    answer = world.sync(leader, 3, assignments={leader: b"A"})
    assert answer.now.error is waiting.now.error is ErrorCode.NOT_COORDINATOR
    assert state(world) is GroupState.PREPARING_REBALANCE
    assert world.shard().recorded[GROUP].generation_id == 2


def test_response_callback_may_send_the_next_request(world: GroupWorld):
    answers = []

    def on_join(result: JoinResult) -> None:
        answers.append(world.sync(result.member_id, result.generation_id, assignments={result.member_id: b"A"}))

    world.coordinator.join_group(
        JoinGroup(GROUP, "", "c", "/h", "consumer", (RANGE,), SESSION_MS, REBALANCE_MS, requires_known_member_id=False),
        world.now_ms,
        on_join,
    )
    assert answers[0].now.assignment == b"A"
    assert state(world) is GroupState.STABLE
