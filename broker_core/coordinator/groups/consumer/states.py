"""The rules of consumer groups (KIP-848) as tables.

They define the states of groups and members, the accepted member epochs, and who may commit and fetch offsets.

Unlike in the classic protocol there is no common phase: each member moves to the group epoch on its own, first
revoking what it must not keep (UNREVOKED), then waiting for what others have not revoked (UNRELEASED).
"""

from collections.abc import Mapping
from enum import Enum, IntEnum
from itertools import product
from typing import Final

from broker_core.coordinator.groups.classic.requests import NO_GENERATION, UNKNOWN_MEMBER
from broker_core.decision_table import Row, Table
from broker_core.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

_BOTH: Final = (False, True)


class MemberState(IntEnum):
    """The state of a member; the values are as in Kafka's records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ConsumerGroupState(Enum):
    """The state of a group; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


GROUP_STATE: Final[Table[ConsumerGroupState]] = Table(
    "the state of a group",
    {"members": _BOTH, "target_is_behind": _BOTH, "all_reconciled": _BOTH},
    (
        Row("there are no members", {"members": False}, ConsumerGroupState.EMPTY),
        Row("the target assignment is not computed yet", {"target_is_behind": True}, ConsumerGroupState.ASSIGNING),
        Row("some members have not reached their target", {"all_reconciled": False}, ConsumerGroupState.RECONCILING),
        Row("all members have reached their target", {}, ConsumerGroupState.STABLE),
    ),
    ordered=True,
)


class EpochFit(Enum):
    """The relation of a heartbeat's member epoch to the known one."""

    JOINING = "0: the member starts again"
    CURRENT = "the known one"
    PREVIOUS = "the previous one: the response that raised it was lost"
    OLDER = "older than that"
    NEWER = "one that was never assigned"


def epoch_fit(received: int, current: int, previous: int) -> EpochFit:
    if received == JOIN_EPOCH:
        return EpochFit.JOINING
    if received == current:
        return EpochFit.CURRENT
    if received > current:
        return EpochFit.NEWER
    return EpochFit.PREVIOUS if received == previous else EpochFit.OLDER


# (fit, the member reports its partitions, and only assigned ones). A member whose answer was lost sends the previous
# epoch; it may continue only if it cannot be reading a partition that was assigned to another.
# Rules E.7 heartbeat.
HEARTBEAT_EPOCH: Final[Mapping[tuple[EpochFit, bool], ErrorCode]] = {
    **dict.fromkeys(product((EpochFit.JOINING, EpochFit.CURRENT), _BOTH), ErrorCode.NONE),
    (EpochFit.PREVIOUS, False): ErrorCode.FENCED_MEMBER_EPOCH,
    (EpochFit.PREVIOUS, True): ErrorCode.NONE,
    **dict.fromkeys(product((EpochFit.OLDER, EpochFit.NEWER), _BOTH), ErrorCode.FENCED_MEMBER_EPOCH),
}


class Caller(Enum):
    """The identity that a commit contains."""

    ANONYMOUS = "neither member nor instance id, nor an epoch"
    WITHOUT_EPOCH = "an id, but no epoch"
    MEMBER = "an epoch"


def caller_of(member_id: str, group_instance_id: str | None, member_epoch: int) -> Caller:
    if member_epoch >= 0:
        return Caller.MEMBER
    is_anonymous = (member_id, group_instance_id, member_epoch) == (UNKNOWN_MEMBER, None, NO_GENERATION)
    return Caller.ANONYMOUS if is_anonymous else Caller.WITHOUT_EPOCH


class CommitFit(Enum):
    """The relation of a commit's member epoch to the known one."""

    CURRENT = "the known one"
    KEPT = "older, but the member has owned all the partitions since"
    STALE = "older and some partitions were not its own, or never assigned"


_FITTING: Final = (CommitFit.CURRENT, CommitFit.KEPT)

# The epoch is checked for each partition (KIP-1251), so a commit in flight while the epoch changes is not lost.
# Rules E.7 commit.
COMMIT: Final[Table[ErrorCode]] = Table(
    "who may commit",
    {
        "group_is_empty": _BOTH,
        "caller": tuple(Caller),
        "is_member": _BOTH,
        "is_classic": _BOTH,
        "fit": tuple(CommitFit),
        "transactional": _BOTH,
        "knows_member_epochs": _BOTH,
    },
    (
        Row(
            "an empty group is open to those outside it",
            {"group_is_empty": True, "caller": (Caller.ANONYMOUS, Caller.WITHOUT_EPOCH)},
            ErrorCode.NONE,
        ),
        Row("an empty group has no members", {"group_is_empty": True}, ErrorCode.UNKNOWN_MEMBER_ID),
        # Transactional clients before KIP-447 could not send their member id; the producer's epoch fences them.
        Row("a transaction that names no member", {"caller": Caller.ANONYMOUS, "transactional": True}, ErrorCode.NONE),
        Row("the group has other members", {"is_member": False}, ErrorCode.UNKNOWN_MEMBER_ID),
        Row(
            "a version that cannot carry a member epoch",
            {"is_classic": False, "transactional": False, "knows_member_epochs": False},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        Row("a commit of a member", {"fit": _FITTING}, ErrorCode.NONE),
        Row(
            "a commit of a member of the classic protocol from the past",
            {"is_classic": True},
            ErrorCode.ILLEGAL_GENERATION,
        ),
        Row("a commit from the past", {"knows_member_epochs": True}, ErrorCode.STALE_MEMBER_EPOCH),
        # TxnOffsetCommit had only the errors of the classic protocol up to version 5.
        Row(
            "a commit in a transaction from the past, in a version without member epochs",
            {},
            ErrorCode.ILLEGAL_GENERATION,
        ),
    ),
    impossible=(
        {"group_is_empty": True, "is_member": True},
        {"is_member": False, "fit": _FITTING},
        {"is_member": False, "is_classic": True},
        {"caller": Caller.ANONYMOUS, "is_member": True},
    ),
    ordered=True,
)

# Rules E.7 fetch.
FETCH: Final[Table[ErrorCode]] = Table(
    "who may fetch committed offsets",
    {"names_member": _BOTH, "is_member": _BOTH, "is_classic": _BOTH, "epoch_is_current": _BOTH},
    (
        Row("an administrator or an old client", {"names_member": False}, ErrorCode.NONE),
        Row("no member", {"is_member": False}, ErrorCode.UNKNOWN_MEMBER_ID),
        Row("a member", {"epoch_is_current": True}, ErrorCode.NONE),
        # Offsets are fetched before reading: a member with an old epoch must not start to read.
        Row("a member of the past", {"is_classic": False}, ErrorCode.STALE_MEMBER_EPOCH),
        Row("a member of the past, of the classic protocol", {}, ErrorCode.ILLEGAL_GENERATION),
    ),
    impossible=({"is_member": False, "epoch_is_current": True}, {"is_member": False, "is_classic": True}),
    ordered=True,
)

# Rule E.7 protocol/3.
DELETE_GROUP: Final[Mapping[ConsumerGroupState, ErrorCode]] = {
    **dict.fromkeys(ConsumerGroupState, ErrorCode.NON_EMPTY_GROUP),
    ConsumerGroupState.EMPTY: ErrorCode.NONE,
}


# Whether a value of `group.consumer.migration.policy` allows groups with members (upgrades, downgrades).
# Rule E.8/1.
POLICY: Final[Mapping[str, tuple[bool, bool]]] = {
    "disabled": (False, False),
    "upgrade": (True, False),
    "downgrade": (False, True),
    "bidirectional": (True, True),
}

# The reason why a classic group with members remains one, empty if it becomes a consumer group. Members whose
# subscriptions are not consumers' cannot be assigned partitions by the coordinator.
UPGRADE: Final[Table[str]] = Table(
    "whether a classic group becomes a consumer group",
    {"policy_allows": _BOTH, "members_are_consumers": _BOTH, "has_space": _BOTH},
    (
        Row("Rule E.8 upgrade/1", {"policy_allows": False}, "online upgrade is disabled"),
        Row(
            "Rule E.8 upgrade/2",
            {"members_are_consumers": False},
            "the group does not use the consumer embedded protocol",
        ),
        Row("Rule E.8 upgrade/3", {"has_space": False}, "the group size exceeds the consumer group maximum size"),
        Row("Rule E.8 upgrade/4", {}, ""),
    ),
    ordered=True,
)

# A group without members of the consumer protocol has no use for its coordinator's assignments.
DOWNGRADE: Final[Table[bool]] = Table(
    "whether a consumer group becomes a classic group when members leave",
    {"members_remain": _BOTH, "remaining_are_classic": _BOTH, "policy_allows": _BOTH, "has_space": _BOTH},
    (
        Row("Rule E.8 downgrade/1", {"members_remain": False}, False),
        Row("Rule E.8 downgrade/2", {"remaining_are_classic": False}, False),
        Row("Rule E.8 downgrade/3", {"policy_allows": False}, False),
        Row("Rule E.8 downgrade/4", {"has_space": False}, False),
        Row("Rule E.8 downgrade/5", {}, True),
    ),
    impossible=({"members_remain": False, "remaining_are_classic": False},),
    ordered=True,
)


# A member of the classic protocol learns by its heartbeat when to join again: for a new target, to report what it has
# revoked, or to collect partitions that others have given up. What it must not keep it learns from its SyncGroup.
CLASSIC_HEARTBEAT: Final[Table[ErrorCode]] = Table(
    "the heartbeat of a classic member",
    {"is_behind_target": _BOTH, "state": tuple(MemberState), "others_keep_its_partitions": _BOTH},
    (
        Row("Rule E.8 heartbeat/1", {"is_behind_target": True}, ErrorCode.REBALANCE_IN_PROGRESS),
        Row("Rule E.8 heartbeat/2", {"state": MemberState.UNREVOKED}, ErrorCode.REBALANCE_IN_PROGRESS),
        Row(
            "Rule E.8 heartbeat/3",
            {"state": MemberState.UNRELEASED, "others_keep_its_partitions": False},
            ErrorCode.REBALANCE_IN_PROGRESS,
        ),
        Row("Rule E.8 heartbeat/4", {"state": MemberState.UNRELEASED}, ErrorCode.NONE),
        Row("Rule E.8 heartbeat/5", {}, ErrorCode.NONE),
    ),
    ordered=True,
)
