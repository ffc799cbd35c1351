"""The steps that take a member to its target (KIP-848, "Reconciliation of the Group").

No partition ever has two readers: a member first revokes the partitions it must not keep, and is assigned only those
that no other member holds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Current, Held, Partitions, TopicIdPartition
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.errors import ErrorCode, KafkaError

# (the member has not yet reported a revocation, a partition of its target is held by another member): the state
# of the member.
NEXT_STATE: Final[Mapping[tuple[bool, bool], MemberState]] = {
    (True, False): MemberState.UNREVOKED,
    (True, True): MemberState.UNREVOKED,
    (False, True): MemberState.UNRELEASED,
    (False, False): MemberState.STABLE,
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a reconciliation, with the facts it depends on.

    `owned` are the partitions the member reports, None if it does not report them; `readable` are the topics it now
    subscribes to, which may be fewer than when the target was computed.
    """

    member_id: str
    target_epoch: int
    target: Partitions
    readable: frozenset[UUID]
    holders: Mapping[TopicIdPartition, str]
    owned: Collection[TopicIdPartition] | None
    subscription_changed: bool = False


def reconcile(current: Current, goal: Goal) -> Current:
    """Return the member's progress after this heartbeat; the same object if nothing changes."""
    if current.state is MemberState.STABLE:
        if current.member_epoch != goal.target_epoch:
            return _unless_same(current, _approach(current, goal, current.member_epoch))
        return _shrink(current, goal) if goal.subscription_changed else current
    if current.state is MemberState.UNREVOKED and _has_any(goal, current.pending):
        return _shrink(current, goal) if goal.subscription_changed else current
    if current.state is MemberState.UNREVOKED:
        # A smaller subscription can lead here before the next target is computed: never exceed the target.
        return _unless_same(current, _approach(current, goal, min(current.member_epoch + 1, goal.target_epoch)))
    if current.state is MemberState.UNKNOWN and (goal.owned is None or goal.owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state this coordinator does not know; it must abandon all its partitions and rejoin.",
        )
    return _unless_same(current, _approach(current, goal, current.member_epoch))


def _unless_same(current: Current, reached: Current) -> Current:
    return current if reached == current else reached


def _has_any(goal: Goal, partitions: Collection[TopicIdPartition]) -> bool:
    """Return whether the member may still read one of these, which it does unless it reports otherwise."""
    return goal.owned is None or any(partition in partitions for partition in goal.owned)


def _approach(current: Current, goal: Goal, member_epoch: int) -> Current:
    wanted = {partition for partition in goal.target if partition.topic_id in goal.readable}
    kept = {partition: epoch for partition, epoch in current.assigned.items() if partition in wanted}
    revoked = {partition: epoch for partition, epoch in current.assigned.items() if partition not in wanted}
    missing = wanted - kept.keys()
    taken = {partition for partition in missing if goal.holders.get(partition, goal.member_id) != goal.member_id}
    state = NEXT_STATE[bool(revoked) and _has_any(goal, revoked), bool(taken)]
    if state is MemberState.UNREVOKED:
        return Current(member_epoch, current.member_epoch, state, kept, revoked)
    given = dict.fromkeys(missing - taken, goal.target_epoch)
    return Current(goal.target_epoch, current.member_epoch, state, kept | given, {})


def _shrink(current: Current, goal: Goal) -> Current:
    """Revoke partitions of topics that the member no longer subscribes to, before a new target is computed."""
    kept: Held = {
        partition: epoch for partition, epoch in current.assigned.items() if partition.topic_id in goal.readable
    }
    if len(kept) == len(current.assigned):
        return current
    gone = {partition: epoch for partition, epoch in current.assigned.items() if partition not in kept}
    pending = {**current.pending, **gone}
    if _has_any(goal, pending):
        return current._replace(state=MemberState.UNREVOKED, assigned=kept, pending=pending)
    return current._replace(assigned=kept)
