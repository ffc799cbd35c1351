"""Each row of the consumer group's tables, and no row beyond them."""

import pytest

from broker_core.coordinator.groups.consumer.states import (
    CLASSIC_HEARTBEAT,
    COMMIT,
    DELETE_GROUP,
    DOWNGRADE,
    FETCH,
    GROUP_STATE,
    HEARTBEAT_EPOCH,
    POLICY,
    UPGRADE,
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
    ("member_id", "instance_id", "epoch", "caller"),
    [
        ("", None, -1, Caller.ANONYMOUS),
        ("a", None, -1, Caller.WITHOUT_EPOCH),
        ("", "i", -1, Caller.WITHOUT_EPOCH),
        ("", None, -2, Caller.WITHOUT_EPOCH),
        ("a", None, 0, Caller.MEMBER),
        ("", None, 3, Caller.MEMBER),
    ],
)
def test_caller_kind_follows_from_ids_and_epoch(member_id: str, instance_id: str | None, epoch: int, caller: Caller):
    assert caller_of(member_id, instance_id, epoch) is caller


# Rules E.1/16, E.1/17, E.7 commit/1, E.7 commit/2, E.7 commit/3, E.7 commit/4, E.7 commit/5, E.7 commit/6,
# E.7 commit/7, E.7 commit/8, E.8 commit/1 and E.8 commit/2.
@pytest.mark.parametrize("case", list(COMMIT.cases()), ids=str)
def test_commit_permission_table(case: dict):
    verdict = COMMIT.resolve(**case)
    if case["group_is_empty"]:
        assert verdict is (ErrorCode.UNKNOWN_MEMBER_ID if case["caller"] is Caller.MEMBER else NONE)
    elif case["caller"] is Caller.ANONYMOUS:
        assert verdict is (NONE if case["transactional"] else ErrorCode.UNKNOWN_MEMBER_ID)
    elif not case["is_member"]:
        assert verdict is ErrorCode.UNKNOWN_MEMBER_ID
    elif not case["transactional"] and not case["knows_member_epochs"] and not case["is_classic"]:
        assert verdict is ErrorCode.UNSUPPORTED_VERSION
    elif case["fit"] is not CommitFit.STALE:
        assert verdict is NONE
    else:
        has_generation = case["is_classic"] or not case["knows_member_epochs"]
        assert verdict is (ErrorCode.ILLEGAL_GENERATION if has_generation else ErrorCode.STALE_MEMBER_EPOCH)


# Rules E.3/4, E.7 fetch/1, E.7 fetch/2, E.7 fetch/3, E.7 fetch/4 and E.8 commit/3.
@pytest.mark.parametrize("case", list(FETCH.cases()), ids=str)
def test_offset_fetch_permission_table(case: dict):
    expected = NONE
    if case["names_member"] and not case["is_member"]:
        expected = ErrorCode.UNKNOWN_MEMBER_ID
    elif case["names_member"] and not case["epoch_is_current"]:
        expected = ErrorCode.ILLEGAL_GENERATION if case["is_classic"] else ErrorCode.STALE_MEMBER_EPOCH
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


# Rule E.7 protocol/3.
@pytest.mark.parametrize("state", ConsumerGroupState)
def test_only_an_empty_group_is_deleted(state: ConsumerGroupState):
    is_empty = state is ConsumerGroupState.EMPTY
    assert DELETE_GROUP[state] is (NONE if is_empty else ErrorCode.NON_EMPTY_GROUP)


# Rule E.8/1.
def test_policy_names_its_directions():
    assert POLICY == {
        "disabled": (False, False),
        "upgrade": (True, False),
        "downgrade": (False, True),
        "bidirectional": (True, True),
    }


# Rules E.8 upgrade/1, E.8 upgrade/2, E.8 upgrade/3 and E.8 upgrade/4.
@pytest.mark.parametrize("case", list(UPGRADE.cases()), ids=str)
def test_upgrade_table(case: dict):
    reason = UPGRADE.resolve(**case)
    if not case["policy_allows"]:
        assert reason == "online upgrade is disabled"
    elif not case["members_are_consumers"]:
        assert reason == "the group does not use the consumer embedded protocol"
    else:
        assert reason == ("" if case["has_space"] else "the group size exceeds the consumer group maximum size")


# Rules E.8 downgrade/1, E.8 downgrade/2, E.8 downgrade/3, E.8 downgrade/4 and E.8 downgrade/5.
@pytest.mark.parametrize("case", list(DOWNGRADE.cases()), ids=str)
def test_downgrade_table(case: dict):
    assert DOWNGRADE.resolve(**case) is all(case.values())


# Rules E.8 heartbeat/1, E.8 heartbeat/2, E.8 heartbeat/3, E.8 heartbeat/4 and E.8 heartbeat/5.
@pytest.mark.parametrize("case", list(CLASSIC_HEARTBEAT.cases()), ids=str)
def test_classic_heartbeat_table(case: dict):
    waits = case["state"] is MemberState.UNRELEASED and not case["others_keep_its_partitions"]
    rejoins = case["is_behind_target"] or case["state"] is MemberState.UNREVOKED or waits
    assert CLASSIC_HEARTBEAT.resolve(**case) is (ErrorCode.REBALANCE_IN_PROGRESS if rejoins else NONE)


def test_member_states_match_kafka_record_values():
    assert {state.name: state.value for state in MemberState} == {
        "STABLE": 0,
        "UNREVOKED": 1,
        "UNRELEASED": 2,
        "UNKNOWN": 127,
    }
