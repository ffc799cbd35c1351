"""A member's reconciliation with its target assignment: revoke first, assign only free partitions."""

from uuid import UUID

import pytest

from broker_core.coordinator.groups.consumer.planning import Goal, reconcile
from broker_core.coordinator.groups.consumer.records import Current, TopicIdPartition
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.errors import ErrorCode, KafkaError

T, U = UUID(int=1), UUID(int=2)
P = [TopicIdPartition(T, number) for number in range(4)]
Q = TopicIdPartition(U, 0)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def goal(*target: TopicIdPartition, epoch: int = 5, owned: list | None = None, taken: tuple = (), **fields) -> Goal:
    usual = {"readable": frozenset({T, U}), "holders": dict.fromkeys(taken, "b")}
    return Goal("a", epoch, frozenset(target), owned=owned, **usual | fields)


def stable(*assigned: TopicIdPartition, epoch: int = 3) -> Current:
    return Current(epoch, epoch - 1, STABLE, dict.fromkeys(assigned, 2))


def unrevoked(assigned: list, pending: list, epoch: int = 3) -> Current:
    return Current(epoch, 2, UNREVOKED, dict.fromkeys(assigned, 2), dict.fromkeys(pending, 2))


@pytest.mark.parametrize(
    ("before", "aim", "after"),
    [
        # Nothing changes.
        (stable(P[0], epoch=5), goal(P[0], P[1]), stable(P[0], epoch=5)),
        # A new target raises the epoch, and new partitions have that epoch.
        (stable(P[0]), goal(P[0]), Current(5, 3, STABLE, {P[0]: 2})),
        (stable(P[0]), goal(P[0], P[1]), Current(5, 3, STABLE, {P[0]: 2, P[1]: 5})),
        (stable(), goal(), Current(5, 3, STABLE, {})),
        # The member waits for partitions of other members and gets free ones at once.
        (stable(P[0]), goal(P[0], P[1], taken=(P[1],)), Current(5, 3, UNRELEASED, {P[0]: 2})),
        (stable(), goal(P[0], P[1], taken=(P[1],)), Current(5, 3, UNRELEASED, {P[0]: 5})),
        # Revocation comes first, and the epoch does not change.
        (stable(P[0], P[1]), goal(P[0], P[2]), Current(3, 3, UNREVOKED, {P[0]: 2}, {P[1]: 2})),
        (stable(P[0], P[1]), goal(P[0], P[2], owned=[P[0], P[1]]), Current(3, 3, UNREVOKED, {P[0]: 2}, {P[1]: 2})),
        (stable(P[0], P[1]), goal(P[0], P[2], taken=(P[2],)), Current(3, 3, UNREVOKED, {P[0]: 2}, {P[1]: 2})),
        # A member that no longer owns the partition need not revoke it.
        (stable(P[0], P[1]), goal(P[0], P[2], owned=[P[0]]), Current(5, 3, STABLE, {P[0]: 2, P[2]: 5})),
        (stable(P[0]), goal(P[1], owned=[]), Current(5, 3, STABLE, {P[1]: 5})),
        # The revocation continues.
        (unrevoked([P[0]], [P[1]]), goal(P[0]), unrevoked([P[0]], [P[1]])),
        (unrevoked([P[0]], [P[1]]), goal(P[0], owned=[P[0], P[1]]), unrevoked([P[0]], [P[1]])),
        # The revocation is complete: the member gets its target, or the next revocation if the target has changed.
        (unrevoked([P[0]], [P[1]]), goal(P[0], owned=[P[0]]), Current(5, 3, STABLE, {P[0]: 2})),
        (
            unrevoked([P[0], P[2]], [P[1]]),
            goal(P[0], owned=[P[0], P[2]]),
            Current(4, 3, UNREVOKED, {P[0]: 2}, {P[2]: 2}),
        ),
        (
            unrevoked([P[0], P[2]], [P[1]]),
            goal(P[0], epoch=3, owned=[P[0], P[2]]),
            Current(3, 3, UNREVOKED, {P[0]: 2}, {P[2]: 2}),
        ),
        # A revoked partition that returns to the target is free for the member that gave it up.
        (unrevoked([], [P[1]]), goal(P[1], owned=[], holders={P[1]: "a"}), Current(5, 3, STABLE, {P[1]: 5})),
        # The member waits until the partition is free.
        (Current(5, 3, UNRELEASED, {P[0]: 5}), goal(P[0], P[1], taken=(P[1],)), Current(5, 5, UNRELEASED, {P[0]: 5})),
        (Current(5, 5, UNRELEASED, {P[0]: 5}), goal(P[0], P[1]), Current(5, 5, STABLE, {P[0]: 5, P[1]: 5})),
        # A topic removed from the subscription is revoked at once, in all states, before the next target.
        (
            stable(P[0], Q, epoch=5),
            goal(P[0], Q, readable=frozenset({T}), subscription_changed=True),
            Current(5, 4, UNREVOKED, {P[0]: 2}, {Q: 2}),
        ),
        (
            stable(P[0], Q, epoch=5),
            goal(P[0], Q, readable=frozenset({T}), subscription_changed=True, owned=[P[0]]),
            Current(5, 4, STABLE, {P[0]: 2}),
        ),
        (stable(P[0], epoch=5), goal(P[0], readable=frozenset({T}), subscription_changed=True), stable(P[0], epoch=5)),
        (
            unrevoked([P[0], Q], [P[1]]),
            goal(P[0], Q, readable=frozenset({T}), subscription_changed=True),
            unrevoked([P[0]], [P[1], Q]),
        ),
        (stable(P[0], Q), goal(P[0], Q, readable=frozenset({T})), Current(3, 3, UNREVOKED, {P[0]: 2}, {Q: 2})),
    ],
)
def test_reconciliation_step(before: Current, aim: Goal, after: Current):
    assert reconcile(before, aim) == after


def test_member_state_of_a_newer_version_resets_the_member():
    unknown = Current(3, 2, MemberState.UNKNOWN, {P[0]: 2})
    for owned in (None, [P[0]]):
        with pytest.raises(KafkaError) as fenced:
            reconcile(unknown, goal(P[0], owned=owned))
        assert fenced.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(unknown, goal(P[0], owned=[])) == Current(5, 3, STABLE, {P[0]: 2})
