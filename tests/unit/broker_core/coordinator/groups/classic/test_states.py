"""The tables of the classic protocol: every row is tested, and none is missing or extra."""

from itertools import product

import pytest

from broker_core.coordinator.groups.classic import states as tables
from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.states import ExpiryBasis, GroupState, JoinAction, SyncAction
from broker_core.errors import ErrorCode

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE
STATES = (EMPTY, PREPARING, COMPLETING, STABLE)
BOOLS = (False, True)

# The possible next states of each state.
NEXT = {
    EMPTY: {PREPARING},
    PREPARING: {COMPLETING, EMPTY},
    COMPLETING: {STABLE, PREPARING},
    STABLE: {PREPARING},
}


@pytest.mark.parametrize(("before", "after"), list(product(STATES, GroupState)))
def test_group_makes_only_legal_transitions(before: GroupState, after: GroupState):
    group = ClassicGroup("g")
    group.state = before
    if after in NEXT[before]:
        group.transition_to(after, 7)
        assert (group.state, group.state_since_ms) == (after, 7)
    else:
        with pytest.raises(AssertionError):
            group.transition_to(after, 7)
        assert group.state is before


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (tables.DEPARTURE_REBALANCES, list(STATES)),
        (tables.DELETE_GROUP, list(STATES)),
        (tables.REJOIN, list(product(STATES, BOOLS, BOOLS))),
        (tables.STATIC_RETURN, list(product(set(STATES) - {EMPTY}, BOOLS))),
        (tables.COMMIT, list(product(STATES, BOOLS))),
        (tables.ANONYMOUS_COMMIT, list(product(STATES, BOOLS))),
        (tables.DELETE_OFFSETS, list(product(STATES, BOOLS))),
        (tables.EXPIRY_BASIS, list(product(STATES, ("simple", "consumer", "other")))),
    ],
)
def test_each_table_has_exactly_one_row_per_case(table: dict[object, object], keys: list[object]):
    assert set(table) == set(keys)


# Rule E.6/5.
def test_heartbeat_table():
    assert tables.HEARTBEAT == {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: ErrorCode.NONE,
        STABLE: ErrorCode.NONE,
    }


# Rule E.6/4.
def test_sync_table():
    assert tables.SYNC == {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING: SyncAction.AWAIT,
        STABLE: SyncAction.ANSWER,
    }


# Rules E.6/1 and E.6/2.
@pytest.mark.parametrize(("state", "leads", "changed"), list(product(STATES, BOOLS, BOOLS)))
def test_rejoin_table(state: GroupState, leads: bool, changed: bool):
    expected = {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING: JoinAction.AWAIT,
        COMPLETING: JoinAction.REBALANCE if changed else JoinAction.ANSWER_CURRENT,
        STABLE: JoinAction.REBALANCE if leads or changed else JoinAction.ANSWER_CURRENT,
    }
    assert tables.REJOIN[state, leads, changed] is expected[state]


# Rule E.6/3.
@pytest.mark.parametrize(
    ("state", "other_protocol"), list(product([each for each in STATES if each is not EMPTY], BOOLS))
)
def test_static_member_rejoin_table(state: GroupState, other_protocol: bool):
    expected = {
        PREPARING: JoinAction.AWAIT,
        COMPLETING: JoinAction.REBALANCE,
        STABLE: JoinAction.REBALANCE if other_protocol else JoinAction.PERSIST,
    }
    assert tables.STATIC_RETURN[state, other_protocol] is expected[state]


# Rules E.1/20, E.6/6 and E.6/7.
@pytest.mark.parametrize(("state", "transactional"), list(product(STATES, BOOLS)))
def test_commit_table(state: GroupState, transactional: bool):
    named, anonymous = ErrorCode.NONE, ErrorCode.NONE
    if not transactional:
        named = ErrorCode.REBALANCE_IN_PROGRESS if state is COMPLETING else ErrorCode.NONE
        anonymous = ErrorCode.NONE if state is EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
    assert tables.COMMIT[state, transactional] is named
    assert tables.ANONYMOUS_COMMIT[state, transactional] is anonymous


# Rule E.6/11.
@pytest.mark.parametrize("state", STATES)
def test_leaving_triggers_a_rebalance_in_a_stable_group(state: GroupState):
    assert tables.DEPARTURE_REBALANCES[state] is (state in (STABLE, COMPLETING))


# Rules E.6/8, E.6/9 and E.6/10.
@pytest.mark.parametrize("state", STATES)
def test_deletion_table(state: GroupState):
    live = state in (PREPARING, COMPLETING, STABLE)
    verdict = ErrorCode.NON_EMPTY_GROUP if live else ErrorCode.NONE
    assert tables.DELETE_GROUP[state] is verdict
    assert tables.DELETE_OFFSETS[state, False] is verdict
    assert tables.DELETE_OFFSETS[state, True] is ErrorCode.NONE


# Rules E.6 offsets/1, E.6 offsets/2, E.6 offsets/3 and E.6 offsets/4.
@pytest.mark.parametrize("state", STATES)
def test_expiry_table(state: GroupState):
    at_rest = ExpiryBasis.SINCE_EMPTY if state is EMPTY else ExpiryBasis.NEVER
    assert tables.EXPIRY_BASIS[state, "simple"] is ExpiryBasis.LAST_COMMIT
    assert tables.EXPIRY_BASIS[state, "other"] is at_rest
    assert tables.EXPIRY_BASIS[state, "consumer"] is (ExpiryBasis.LAST_COMMIT if state is STABLE else at_rest)


def test_states_have_protocol_names():
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
