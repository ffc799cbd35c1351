"""The rules of classic groups as tables: states, legal transitions, and the result of each request in each state.

A group waits for its members to join (PREPARING_REBALANCE), answers them and waits for the leader's assignment
(COMPLETING_REBALANCE), distributes it (STABLE), and starts again when a member joins, leaves or
expires. Only STABLE and EMPTY are recorded in the journal; the other states are in memory only.
"""

from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Any, Final, TypeVar

from broker_core.errors import ErrorCode


class GroupState(Enum):
    """The state of a group; the values are Kafka's names on the wire.

    A group is removed in the step that ends it, so only the description of a group that does not exist is dead.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_WITH_MEMBERS: Final = (_PREPARING, _COMPLETING, _STABLE)
_STATES: Final = (_EMPTY, *_WITH_MEMBERS)

TRANSITIONS: Final[frozenset[tuple[GroupState, GroupState]]] = frozenset(
    {
        (_EMPTY, _PREPARING),
        (_STABLE, _PREPARING),
        (_COMPLETING, _PREPARING),
        (_PREPARING, _COMPLETING),
        (_PREPARING, _EMPTY),
        (_COMPLETING, _STABLE),
    }
)

_BOTH: Final = (False, True)
_Verdict = TypeVar("_Verdict")


def _rows(verdict: _Verdict, state: GroupState, *facts: tuple[bool, ...]) -> dict[tuple[Any, ...], _Verdict]:
    return dict.fromkeys(product((state,), *facts), verdict)


class JoinAction(Enum):
    """The result of a join by a known member."""

    REBALANCE = "start a rebalance"
    AWAIT = "wait for the rebalance under way"
    ANSWER_CURRENT = "answer with the current generation"
    PERSIST = "record the new member id, answer with the current generation"


# (state, is the leader, has changed its metadata)
# Rules E.6/1 and E.6/2.
REJOIN: Final[Mapping[tuple[GroupState, bool, bool], JoinAction | ErrorCode]] = {
    **_rows(ErrorCode.UNKNOWN_MEMBER_ID, _EMPTY, _BOTH, _BOTH),
    **_rows(JoinAction.AWAIT, _PREPARING, _BOTH, _BOTH),
    # The answer to the first join may have been lost: repeat it rather than rebalance.
    **_rows(JoinAction.ANSWER_CURRENT, _COMPLETING, _BOTH, (False,)),
    **_rows(JoinAction.REBALANCE, _COMPLETING, _BOTH, (True,)),
    (_STABLE, False, False): JoinAction.ANSWER_CURRENT,
    (_STABLE, False, True): JoinAction.REBALANCE,
    # A leader rejoins to assign partitions again, for instance when a topic has more partitions.
    **_rows(JoinAction.REBALANCE, _STABLE, (True,), _BOTH),
}

# A known instance rejoins without its member id (KIP-345); (state, the group would choose another protocol).
# Rule E.6/3.
STATIC_RETURN: Final[Mapping[tuple[GroupState, bool], JoinAction]] = {
    **_rows(JoinAction.AWAIT, _PREPARING, _BOTH),
    # The leader may be assigning partitions to the old member id, which no longer exists.
    **_rows(JoinAction.REBALANCE, _COMPLETING, _BOTH),
    (_STABLE, False): JoinAction.PERSIST,
    (_STABLE, True): JoinAction.REBALANCE,
}

# Rule E.6/5.
HEARTBEAT: Final[Mapping[GroupState, ErrorCode]] = {
    _EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    _COMPLETING: ErrorCode.NONE,
    _STABLE: ErrorCode.NONE,
}


class SyncAction(Enum):
    """The result of a sync by a member in the current generation."""

    AWAIT = "wait for the leader's assignment"
    ANSWER = "answer with the assignment"


# Rule E.6/4.
SYNC: Final[Mapping[GroupState, SyncAction | ErrorCode]] = {
    _EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    _COMPLETING: SyncAction.AWAIT,
    _STABLE: SyncAction.ANSWER,
}

# Whether the departure of a member starts a rebalance (True) or may complete the current one (False).
# Rule E.6/11.
DEPARTURE_REBALANCES: Final[Mapping[GroupState, bool]] = {
    _STABLE: True,
    _COMPLETING: True,
    _PREPARING: False,
    _EMPTY: False,
}

# (state, transactional), after the checks of the caller's identity and generation. A consumer between join and sync
# is already in the new generation: its commit concerns partitions that it may have lost. A commit in a
# transaction is fenced by the producer's epoch and the generation alone (KIP-447).
# Rule E.6/6.
COMMIT: Final[Mapping[tuple[GroupState, bool], ErrorCode]] = {
    **_rows(ErrorCode.NONE, _EMPTY, _BOTH),
    **_rows(ErrorCode.NONE, _PREPARING, _BOTH),
    (_COMPLETING, False): ErrorCode.REBALANCE_IN_PROGRESS,
    (_COMPLETING, True): ErrorCode.NONE,
    **_rows(ErrorCode.NONE, _STABLE, _BOTH),
}

# (state, transactional), for a caller without member id and generation: in a group with members only they
# may commit, but transactional clients before KIP-447 could not send their member id.
# Rule E.6/7.
ANONYMOUS_COMMIT: Final[Mapping[tuple[GroupState, bool], ErrorCode]] = {
    **{(state, False): ErrorCode.UNKNOWN_MEMBER_ID for state in _WITH_MEMBERS},
    **{(state, True): ErrorCode.NONE for state in _WITH_MEMBERS},
    **_rows(ErrorCode.NONE, _EMPTY, _BOTH),
}


class ExpiryBasis(Enum):
    """The time from which the retention of a group's offsets counts."""

    LAST_COMMIT = "the commit of each offset"
    SINCE_EMPTY = "the moment the last member left"
    NEVER = "nothing expires in this state"


# (state, kind of group): in a group that never had members ("simple") only the time of the commit counts.
# Rules E.6 offsets.
EXPIRY_BASIS: Final[Mapping[tuple[GroupState, str], ExpiryBasis]] = {
    **{(state, "simple"): ExpiryBasis.LAST_COMMIT for state in _STATES},
    **{(state, kind): ExpiryBasis.NEVER for state in _STATES for kind in ("consumer", "other")},
    (_EMPTY, "consumer"): ExpiryBasis.SINCE_EMPTY,
    (_EMPTY, "other"): ExpiryBasis.SINCE_EMPTY,
    # Members may have unsubscribed from a topic; only offsets of topics that none of them reads expire.
    (_STABLE, "consumer"): ExpiryBasis.LAST_COMMIT,
}

# Rule E.6/8.
DELETE_GROUP: Final[Mapping[GroupState, ErrorCode]] = {
    _EMPTY: ErrorCode.NONE,
    **dict.fromkeys(_WITH_MEMBERS, ErrorCode.NON_EMPTY_GROUP),
}

# (state, the members are consumers): the subscriptions of consumers are known by topic, other members block deletion.
# Rules E.6/9 and E.6/10.
DELETE_OFFSETS: Final[Mapping[tuple[GroupState, bool], ErrorCode]] = {
    **_rows(ErrorCode.NONE, _EMPTY, _BOTH),
    **{(state, False): ErrorCode.NON_EMPTY_GROUP for state in _WITH_MEMBERS},
    **{(state, True): ErrorCode.NONE for state in _WITH_MEMBERS},
}
