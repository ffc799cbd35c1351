"""Unused offsets expire after their retention, not before (KIP-211)."""

import pytest

from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.offsets.store import OffsetCommit, OffsetToCommit
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, NONE, T0, T1, U0, GroupWorld, subscription

RETENTION_MS = 60_000
CHECK_MS = 1_000


def expiring_world() -> GroupWorld:
    return GroupWorld(
        offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS, group_max_session_timeout_ms=10**9
    )


def group_ids(world: GroupWorld) -> list[str]:
    return [listing.group_id for listing in world.coordinator.list_groups()]


def member_of(world: GroupWorld, **fields: object) -> str:
    member = world.join(session_timeout_ms=10**8, **fields).now.member_id
    world.settle(1, {member: b"A"})
    return member


# Rule E.6 offsets/1.
def test_simple_group_expires_each_offset_after_its_last_commit():
    world = expiring_world()
    world.commit(1, T0)
    world.pass_ms(RETENTION_MS // 2)
    world.commit(1, T1)
    world.pass_ms(RETENTION_MS // 2 - 1)
    assert world.fetch(T0) == 1
    world.pass_ms(CHECK_MS)
    assert (world.fetch(T0), world.fetch(T1)) == (-1, 1)
    assert group_ids(world) == [GROUP]
    world.pass_ms(RETENTION_MS // 2)
    assert (world.fetch(T1), group_ids(world)) == (-1, [])


# Rule E.6 offsets/2.
def test_empty_group_expires_offsets_from_the_last_departure():
    world = expiring_world()
    member = member_of(world)
    world.commit(1, T0, generation_id=1, member_id=member)
    world.pass_ms(10 * RETENTION_MS)
    world.leave(LeavingMember(member))
    # The next coordinator reads from the group's record when that was.
    world.fail_over()
    world.pass_ms(RETENTION_MS - 1)
    assert world.fetch(T0) == 1
    world.pass_ms(CHECK_MS)
    assert (world.fetch(T0), group_ids(world)) == (-1, [])
    assert GROUP not in world.shard().recorded


# Rule E.6 offsets/3.
def test_consumers_keep_subscribed_offsets_and_lose_others():
    world = expiring_world()
    member = member_of(world)
    world.commit(1, T0, generation_id=1, member_id=member)
    world.commit(1, U0, generation_id=1, member_id=member)
    world.pass_ms(RETENTION_MS + CHECK_MS)
    assert (world.fetch(T0), world.fetch(U0)) == (1, -1)


# Rule E.6 offsets/4.
@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect", "protocols": (("p", subscription("t")),)}, {"protocols": (("own", b"?"),)}]
)
def test_groups_with_unknown_subscriptions_keep_offsets_while_members_exist(fields: dict[str, object]):
    world = expiring_world()
    member = member_of(world, **fields)
    world.commit(1, U0, generation_id=1, member_id=member)
    world.pass_ms(10 * RETENTION_MS)
    assert world.fetch(U0) == 1


# Rule E.6 offsets/4.
def test_no_offset_expires_during_a_rebalance():
    world = expiring_world()
    member = member_of(world)
    world.commit(1, U0, generation_id=1, member_id=member)
    world.group().members[member].rebalance_timeout_ms = 10**8
    world.join()
    world.pass_ms(3 * RETENTION_MS)
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.fetch(U0) == 1


# Rule E.2/6.
def test_offset_with_a_pending_transaction_does_not_expire():
    world = expiring_world()
    world.commit(1, T0)
    world.txn_commit(2, T0)
    world.txn_commit(2, T1)
    world.pass_ms(2 * RETENTION_MS)
    assert (world.fetch(T0), group_ids(world)) == (1, [GROUP])
    world.end(commit=False)
    world.pass_ms(CHECK_MS)
    assert (world.fetch(T0), group_ids(world)) == (-1, [])


def test_retention_given_with_the_commit_takes_precedence():
    world = expiring_world()
    for retention_ms, partition in ((CHECK_MS, T0), (10 * RETENTION_MS, T1), (2**63 - 1, U0)):
        request = OffsetCommit(GROUP, {partition: OffsetToCommit(1)}, retention_ms=retention_ms)
        assert world.coordinator.commit_offsets(request, world.now_ms) == {partition: NONE}
    world.pass_ms(2 * CHECK_MS)
    assert (world.fetch(T0), world.fetch(T1)) == (-1, 1)
    world.pass_ms(5 * RETENTION_MS)
    world.fail_over()
    world.pass_ms(5 * RETENTION_MS)
    assert (world.fetch(T1), world.fetch(U0)) == (-1, 1)


def test_group_without_offsets_is_removed_once_empty():
    world = expiring_world()
    member = member_of(world)
    world.pass_ms(10 * CHECK_MS)
    assert group_ids(world) == [GROUP]
    world.leave(LeavingMember(member))
    world.pass_ms(CHECK_MS)
    assert group_ids(world) == []


def test_group_with_a_pending_member_is_not_removed():
    world = expiring_world()
    rejection = world.join(requires_known_member_id=True).now
    world.pass_ms(2 * CHECK_MS)
    assert world.join(rejection.member_id).now.error is NONE


def test_refused_tombstone_is_retried():
    world = expiring_world()
    world.commit(1)
    world.pass_ms(RETENTION_MS - 1)
    world.journal.refuse_next.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.pass_ms(1)
    assert world.fetch() == 1
    world.pass_ms(CHECK_MS)
    assert world.fetch() == -1
