"""Each row of the consumer group's tables, and no row beyond them."""

import pytest

from broker_core.coordinator.groups.consumer.reconciliation import NEXT_STATE
from broker_core.coordinator.groups.consumer.states import (
    CLASSIC_JOIN,
    COMMIT,
    DELETE_GROUP,
    FETCH,
    GROUP_STATE,
    HEARTBEAT_EPOCH,
    Caller,
    CommitFit,
    ConsumerGroupState,
    EpochFit,
    MemberState,
    caller_of,
    epoch_fit,
)
from broker_core.errors import ErrorCode

NONE = ErrorCode.NONE


@pytest.mark.parametrize(
    ("received", "fit"),
    [
        (0, EpochFit.JOINING),
        (5, EpochFit.CURRENT),
        (4, EpochFit.OLDER),
        (3, EpochFit.PREVIOUS),
        (2, EpochFit.OLDER),
        (6, EpochFit.NEWER),
    ],
)
def test_member_epoch_is_current_previous_or_invalid(received: int, fit: EpochFit):
    assert epoch_fit(received, 5, 3) is fit


def test_epoch_of_an_absent_static_member_matches_no_caller():
    assert epoch_fit(5, -2, 4) is EpochFit.NEWER


# Rules E.7 heartbeat/1, E.7 heartbeat/2, E.7 heartbeat/3 and E.7 heartbeat/4.
@pytest.mark.parametrize("fit", EpochFit)
@pytest.mark.parametrize("owns_its_own_only", [False, True])
def test_heartbeat_is_accepted_by_its_epoch(fit: EpochFit, owns_its_own_only: bool):
    is_accepted = fit in (EpochFit.JOINING, EpochFit.CURRENT) or (fit is EpochFit.PREVIOUS and owns_its_own_only)
    expected = NONE if is_accepted else ErrorCode.FENCED_MEMBER_EPOCH
    assert HEARTBEAT_EPOCH[fit, owns_its_own_only] is expected
    assert len(HEARTBEAT_EPOCH) == 2 * len(EpochFit)


@pytest.mark.parametrize(
    ("member_id", "epoch", "caller"),
    [
        ("", -1, Caller.ANONYMOUS),
        ("a", -1, Caller.WITHOUT_EPOCH),
        ("a", 0, Caller.MEMBER),
        ("", 3, Caller.MEMBER),
    ],
)
def test_caller_kind_follows_from_member_id_and_epoch(member_id: str, epoch: int, caller: Caller):
    assert caller_of(member_id, epoch) is caller


# Rules E.1/16, E.1/17, E.7 commit/1, E.7 commit/2, E.7 commit/3, E.7 commit/4, E.7 commit/5, E.7 commit/6,
# E.7 commit/7 and E.7 commit/8.
@pytest.mark.parametrize("case", list(COMMIT.cases()), ids=str)
def test_commit_permission_table(case: dict):
    verdict = COMMIT.resolve(**case)
    if case["group_is_empty"]:
        assert verdict is (ErrorCode.UNKNOWN_MEMBER_ID if case["caller"] is Caller.MEMBER else NONE)
    elif case["caller"] is Caller.ANONYMOUS:
        assert verdict is (NONE if case["transactional"] else ErrorCode.UNKNOWN_MEMBER_ID)
    elif not case["is_member"]:
        assert verdict is ErrorCode.UNKNOWN_MEMBER_ID
    elif not case["transactional"] and not case["knows_member_epochs"]:
        assert verdict is ErrorCode.UNSUPPORTED_VERSION
    elif case["fit"] is not CommitFit.STALE:
        assert verdict is NONE
    else:
        assert verdict is (ErrorCode.ILLEGAL_GENERATION if case["transactional"] else ErrorCode.STALE_MEMBER_EPOCH)


# Rules E.3/4, E.7 fetch/1, E.7 fetch/2, E.7 fetch/3 and E.7 fetch/4.
@pytest.mark.parametrize("case", list(FETCH.cases()), ids=str)
def test_offset_fetch_permission_table(case: dict):
    expected = NONE
    if case["names_member"] and not case["is_member"]:
        expected = ErrorCode.UNKNOWN_MEMBER_ID
    elif case["names_member"] and not case["epoch_is_current"]:
        expected = ErrorCode.STALE_MEMBER_EPOCH
    assert FETCH.resolve(**case) is expected


@pytest.mark.parametrize(
    ("members", "behind", "reconciled", "state"),
    [
        (False, False, True, "Empty"),
        (False, True, True, "Empty"),
        (False, False, False, "Empty"),
        (False, True, False, "Empty"),
        (True, True, True, "Assigning"),
        (True, True, False, "Assigning"),
        (True, False, False, "Reconciling"),
        (True, False, True, "Stable"),
    ],
)
def test_group_state_table(members: bool, behind: bool, reconciled: bool, state: str):
    assert GROUP_STATE.resolve(members=members, target_is_behind=behind, all_reconciled=reconciled).value == state


# Rules E.7 protocol/1, E.7 protocol/2 and E.7 protocol/3.
@pytest.mark.parametrize("state", ConsumerGroupState)
def test_only_an_empty_group_is_deleted_or_converted(state: ConsumerGroupState):
    is_empty = state is ConsumerGroupState.EMPTY
    assert DELETE_GROUP[state] is (NONE if is_empty else ErrorCode.NON_EMPTY_GROUP)
    assert CLASSIC_JOIN[state] is (NONE if is_empty else ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_member_revokes_before_it_waits_for_others():
    assert {case: state.name for case, state in NEXT_STATE.items()} == {
        (True, True): "UNREVOKED",
        (True, False): "UNREVOKED",
        (False, True): "UNRELEASED",
        (False, False): "STABLE",
    }


def test_member_states_match_kafka_record_values():
    assert {state.name: state.value for state in MemberState} == {
        "STABLE": 0,
        "UNREVOKED": 1,
        "UNRELEASED": 2,
        "UNKNOWN": 127,
    }
