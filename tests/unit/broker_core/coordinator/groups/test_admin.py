"""The view of groups that an administrator has, and the deletions that are allowed."""

import pytest

from broker_core.coordinator.groups.classic.records import RecordedMember
from broker_core.coordinator.groups.classic.requests import GroupDescription
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.offsets.store import OffsetsResult, OffsetStore
from broker_core.coordinator.groups.shard import GroupListing
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from tests.support.broker_core.group_world import (
    GROUP,
    NONE,
    REBALANCE_MS,
    SESSION_MS,
    T0,
    T1,
    U0,
    GroupWorld,
    subscription,
)

SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_stable_group_is_described_with_assignments(world: GroupWorld):
    (member,) = world.stable("a")
    assert world.coordinator.describe(GROUP) == GroupDescription(
        NONE,
        GROUP,
        GroupState.STABLE,
        "consumer",
        "range",
        (RecordedMember(member, None, "a", "/127.0.0.1", REBALANCE_MS, SESSION_MS, subscription("t"), b"a"),),
    )


def test_rebalancing_group_is_described_without_assignments(world: GroupWorld):
    world.stable("a")
    world.join()
    described = world.coordinator.describe(GROUP)
    assert (described.state, described.protocol) == (GroupState.PREPARING_REBALANCE, "")
    assert {(member.subscription, member.assignment) for member in described.members} == {(b"", b"")}


@pytest.mark.parametrize("group_id", ["unknown", ""])
def test_an_unknown_group_is_dead(group_id: str):
    assert GroupWorld().coordinator.describe(group_id) == GroupDescription(
        ErrorCode.GROUP_ID_NOT_FOUND, group_id, GroupState.DEAD, message=f"Group {group_id} not found."
    )


@pytest.mark.parametrize(
    ("states", "types", "groups"),
    [
        ((), (), {GROUP, "simple"}),
        (("stable",), (), {GROUP}),
        (("Empty", "Stable"), ("Classic",), {GROUP, "simple"}),
        (("Dead",), (), set()),
        (("nonsense",), (), set()),
        ((), ("consumer",), set()),
        ((), ("consumer", "classic"), {GROUP, "simple"}),
    ],
)
def test_the_list_is_filtered_by_state_and_type(states: tuple[str, ...], types: tuple[str, ...], groups: set[str]):
    world = GroupWorld()
    world.stable("a")
    world.commit(group_id="simple")
    listed = world.coordinator.list_groups(states, types)
    assert {listing.group_id for listing in listed} == groups


def test_group_list_shows_the_known_fields_of_each_group():
    world = GroupWorld(partition_count=4)
    world.stable("a")
    world.commit(group_id="simple")
    assert sorted(world.coordinator.list_groups(), key=str) == [
        GroupListing(GROUP, "consumer", "Stable", "classic"),
        GroupListing("simple", "", "Empty", "classic"),
    ]


def test_deleted_group_leaves_no_state(world: GroupWorld):
    (member,) = world.stable("a")
    world.commit(1, generation_id=1, member_id=member)
    world.txn_commit(2, T1)
    world.pass_ms(SESSION_MS)
    assert world.coordinator.delete_groups([GROUP], world.now_ms) == {GROUP: NONE}
    assert world.coordinator.list_groups() == []
    world.end(commit=True)
    assert (world.fetch(T0), world.fetch(T1)) == (-1, -1)
    world.fail_over()
    assert world.coordinator.list_groups() == []
    assert vars(world.shard().offsets) == vars(OffsetStore())


def test_group_that_cannot_be_deleted_is_unchanged(world: GroupWorld):
    world.commit(1)
    world.journal.refuse_next.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.coordinator.delete_groups([GROUP], 0) == {GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.fetch() == 1


def test_member_id_given_before_the_group_was_deleted_is_unknown(world: GroupWorld):
    rejection = world.join(requires_known_member_id=True).now
    assert world.coordinator.delete_groups([GROUP], 0) == {GROUP: NONE}
    world.pass_ms(SESSION_MS)
    assert world.join(rejection.member_id).now.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted(world: GroupWorld):
    (member,) = world.stable("a")
    for partition in (T0, U0):
        world.commit(1, partition, generation_id=1, member_id=member)
    result = world.coordinator.delete_offsets(GROUP, [T0, T1, U0, TopicPartition("v", 9)], world.now_ms)
    assert result == OffsetsResult(NONE, {T0: SUBSCRIBED, T1: SUBSCRIBED, U0: NONE, TopicPartition("v", 9): NONE})
    assert (world.fetch(T0), world.fetch(U0)) == (1, -1)


def test_undecodable_subscription_counts_as_subscribed_to_everything(world: GroupWorld):
    joined = world.join(protocols=(("own", b"?"),)).now
    world.settle(1, {joined.member_id: b"A"})
    world.commit(1, generation_id=1, member_id=joined.member_id)
    assert world.coordinator.delete_offsets(GROUP, [U0], 0).offsets == {U0: SUBSCRIBED}


def test_offsets_of_a_nonconsumer_group_are_deleted_only_without_members(world: GroupWorld):
    joined = world.join(protocol_type="connect", protocols=(("p", b""),)).now
    world.settle(1, {joined.member_id: b"A"})
    assert world.coordinator.delete_offsets(GROUP, [T0], 0) == OffsetsResult(ErrorCode.NON_EMPTY_GROUP)
    world.pass_ms(SESSION_MS)
    assert world.coordinator.delete_offsets(GROUP, [T0], 0) == OffsetsResult(NONE, {T0: NONE})


def test_deleting_an_offset_deletes_its_pending_offset(world: GroupWorld):
    world.txn_commit(2)
    assert world.coordinator.delete_offsets(GROUP, [T0], 0).offsets == {T0: NONE}
    assert world.fetch(require_stable=True) == -1
    world.end(commit=True)
    assert world.fetch() == -1


def test_deleting_offsets_of_an_unknown_group_is_refused(world: GroupWorld):
    assert world.coordinator.delete_offsets(GROUP, [T0], 0) == OffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)
    assert world.coordinator.delete_offsets("", [T0], 0) == OffsetsResult(ErrorCode.INVALID_GROUP_ID)


def test_refused_offset_deletion_is_reported_at_the_top_level(world: GroupWorld):
    world.commit(1)
    world.journal.refuse_next.append(ErrorCode.REQUEST_TIMED_OUT)
    assert world.coordinator.delete_offsets(GROUP, [T0], 0) == OffsetsResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.fetch() == 1


def test_offsets_of_deleted_partitions_are_removed_from_all_groups():
    world = GroupWorld(partition_count=4)
    for group_id in (GROUP, "a", "b"):
        world.commit(1, T0, group_id=group_id)
        world.commit(1, U0, group_id=group_id)
    world.coordinator.forget_partitions([T0, T1], world.now_ms)
    for group_id in (GROUP, "a", "b"):
        assert set(world.coordinator.fetch_offsets(group_id, None).offsets) == {U0}
