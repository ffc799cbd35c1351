"""Every case of the transaction tables gets the verdict that the rules give it, read in Kafka's order.

The rows of the tables exclude each other. The functions here state the same rules as Kafka evaluates them, first match
first, and both must agree in every case. Rules A.2, A.5, A.6, A.8, A.9, A.10 and A.13.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

from broker_core.coordinator.transactions.conditions import Claim, Expectation, IdForm, TwoPhase
from broker_core.coordinator.transactions.decision_tables import (
    ADD,
    APPEND_ERRORS,
    COMPLETE,
    END_V1,
    END_V2,
    ENDED,
    INIT,
    INIT_REQUEST,
    MARKER_ACTIONS,
    RETRIED_COMPLETIONS,
    VERIFY,
    AnsweredIdentity,
    Image,
    MarkerAction,
    TransitionVerdict,
)
from broker_core.coordinator.transactions.records import PERSISTED, is_legal
from broker_core.decision_table import Row, Table
from broker_core.errors import ErrorCode
from broker_core.types import TransactionState

S, E = TransactionState, ErrorCode
EMPTY, ONGOING, PC, PA, CC, CA, DEAD, FENCED = S
PREPARED = (PC, PA)
Case = Mapping[str, Any]

LEGAL = {
    EMPTY: {EMPTY, CC, CA},
    ONGOING: {EMPTY, ONGOING, CC, CA},
    PC: {ONGOING},
    PA: {ONGOING, FENCED, EMPTY, CC, CA},
    CC: {PC},
    CA: {PA},
    DEAD: {EMPTY, CC, CA},
    FENCED: {ONGOING},
}


# Rules A.2/0, A.2/1, A.2/2, A.2/3, A.2/4, A.2/5, A.2/6 and A.2/7.
def test_a_2_each_step_is_legal_or_refused() -> None:
    assert {new: {old for old in S if is_legal(old, new)} for new in S} == {new: set(LEGAL[new]) for new in S}


# Rules A.2/0, A.2/1, A.2/2, A.2/3, A.2/4, A.2/5, A.2/6 and A.2/7.
def test_a_2_ids_and_labels() -> None:
    assert {int(state): state.label for state in S} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }
    assert frozenset(S) - PERSISTED == {DEAD, FENCED}


def refused(error: ErrorCode) -> TransitionVerdict:
    return TransitionVerdict(error)


def granted(image: Image) -> TransitionVerdict:
    return TransitionVerdict(E.NONE, EMPTY, image, AnsweredIdentity.STORED)


def init_request(case: Case) -> ErrorCode | None:
    if case["half_expectation"]:
        return E.INVALID_REQUEST  # A.5/4
    if case["form"] is IdForm.NULL:
        return E.NONE  # A.5/5
    if case["form"] is IdForm.BLANK:
        return E.INVALID_REQUEST  # A.5/6
    if case["two_phase"] is TwoPhase.DISABLED:
        return E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # A.5/7
    if case["keep_prepared"]:
        return E.UNSUPPORTED_VERSION  # A.5/8
    if case["two_phase"] is TwoPhase.NOT_ASKED and not case["timeout_fits"]:
        return E.INVALID_TRANSACTION_TIMEOUT  # A.5/9
    return None


def init(case: Case) -> TransitionVerdict:
    state, expected, exhausted = case["state"], case["expectation"], case["exhausted"]
    if case["pending"]:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.5/13
    if expected is Expectation.FOREIGN:
        return refused(E.PRODUCER_FENCED)  # A.5/14
    if state in PREPARED:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.5/15
    if state is ONGOING:
        return TransitionVerdict(E.CONCURRENT_TRANSACTIONS, FENCED)  # A.5/22
    if exhausted and expected is Expectation.NONE:
        return granted(Image.ROTATE)  # A.5/16
    if exhausted and expected is Expectation.CURRENT:
        return granted(Image.ROTATE_REMEMBERING)  # A.5/16
    if exhausted:
        return refused(E.UNKNOWN_SERVER_ERROR)  # A.5/21
    if expected is Expectation.NONE:
        return granted(Image.BUMP)  # A.5/17
    if expected in (Expectation.CURRENT, Expectation.FRESH):
        return granted(Image.BUMP_REMEMBERING)  # A.5/18
    if expected is Expectation.LAST:
        return granted(Image.REPEAT)  # A.5/19
    return refused(E.PRODUCER_FENCED)  # A.5/20


def add(case: Case) -> TransitionVerdict:
    if case["pending"]:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.6/4
    if case["claim"] in (Claim.FOREIGN, Claim.OVERFLOW):
        return refused(E.INVALID_PRODUCER_ID_MAPPING)  # A.6/5
    if case["claim"] is not Claim.CURRENT:
        return refused(E.PRODUCER_FENCED)  # A.6/6
    if case["state"] in PREPARED:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.6/7
    if case["state"] is ONGOING:
        return (
            TransitionVerdict(E.NONE) if case["all_in"] else TransitionVerdict(E.NONE, ONGOING, Image.EXTEND)
        )  # A.6/8, A.6/10
    return TransitionVerdict(E.NONE, ONGOING, Image.BEGIN)  # A.6/9


def verify(case: Case) -> ErrorCode:
    if case["claim"] in (Claim.FOREIGN, Claim.OVERFLOW):
        return E.INVALID_PRODUCER_ID_MAPPING  # A.6 verify/3
    if case["claim"] is not Claim.CURRENT:
        return E.PRODUCER_FENCED  # A.6 verify/4
    if case["state"] in PREPARED:
        return E.CONCURRENT_TRANSACTIONS  # A.6 verify/5
    return E.NONE if case["is_in"] else E.TRANSACTION_ABORTABLE  # A.6 verify/6, A.6 verify/7


def end_v1(case: Case) -> TransitionVerdict:
    state, commit = case["state"], case["commit"]
    if case["claim"] in (Claim.FOREIGN, Claim.OVERFLOW):
        return refused(E.INVALID_PRODUCER_ID_MAPPING)  # A.8 V1/3
    if case["claim"] is not Claim.CURRENT:
        return refused(E.PRODUCER_FENCED)  # A.8 V1/4
    if case["pending"]:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.8 V1/5
    if state is ONGOING:
        return TransitionVerdict(E.NONE, PC if commit else PA, Image.PREPARE)  # A.8 V1/6
    if state is (CC if commit else CA):
        return TransitionVerdict(E.NONE)  # A.8 V1/7
    if state is (PC if commit else PA):
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.8 V1/9
    return refused(E.INVALID_TXN_STATE)  # A.8 V1/8, A.8 V1/10, A.8 V1/11


def end_v2(case: Case) -> TransitionVerdict:
    state, commit, claim = case["state"], case["commit"], case["claim"]
    retry = claim in (Claim.PREVIOUS, Claim.OVERFLOW)
    if case["pending"]:
        return refused(E.CONCURRENT_TRANSACTIONS)  # A.8 V2/2
    if claim is Claim.FOREIGN:
        return refused(E.INVALID_PRODUCER_ID_MAPPING)  # A.8 V2/3
    if not accepted_v2(state, claim):
        return refused(E.PRODUCER_FENCED)  # A.8 V2/4
    bump = TransitionVerdict(E.NONE, PC if commit else PA, Image.PREPARE_BUMPED, AnsweredIdentity.NEXT)
    if state is ONGOING:
        return bump  # A.8 V2/5
    if state in PREPARED:
        return refused(
            E.CONCURRENT_TRANSACTIONS if state is (PC if commit else PA) else E.INVALID_TXN_STATE
        )  # A.8 V2/8
    if retry and state is (CC if commit else CA):
        return TransitionVerdict(E.NONE, answer=AnsweredIdentity.STORED)  # A.8 V2/9, A.8 V2/12
    if retry or commit:
        return refused(E.INVALID_TXN_STATE)  # A.8 V2/7, A.8 V2/10, A.8 V2/11, A.8 V2/13
    return bump  # A.8 V2/6, A.8 V2/11, A.8 V2/12


def accepted_v2(state: TransactionState, claim: Claim) -> bool:
    if state in (ONGOING, EMPTY):
        return claim is Claim.CURRENT
    if state in PREPARED:
        return claim is Claim.PREVIOUS
    return claim in (Claim.CURRENT, Claim.PREVIOUS, Claim.OVERFLOW)


def ended(case: Case) -> Image:
    if not case["bumps"]:
        return Image.FENCE  # A.10/1
    return Image.PREPARE_OVERFLOWED if case["exhausted"] else Image.PREPARE_BUMPED  # A.9/1, A.10/2, A.10/3


def complete(case: Case) -> TransitionVerdict:
    image = Image.COMPLETE_ROTATED if case["rotates"] else Image.COMPLETE  # A.9/4
    return TransitionVerdict(E.NONE, CC if case["state"] is PC else CA, image)


RULES: list[tuple[Table[Any], Callable[[Case], Any]]] = [
    (INIT_REQUEST, init_request),
    (INIT, init),
    (ADD, add),
    (VERIFY, verify),
    (END_V1, end_v1),
    (END_V2, end_v2),
    (ENDED, ended),
    (COMPLETE, complete),
]


@pytest.mark.parametrize(("table", "rule"), RULES, ids=lambda one: getattr(one, "name", None))
def test_decision_table_matches_its_rules_in_order(table: Table[Any], rule: Callable[[Case], Any]) -> None:
    cases = list(table.cases())
    assert cases
    for case in cases:
        row = table.row(**case)
        assert row.verdict == rule(case), f"{row.rule}: {case}"


@pytest.mark.parametrize("table", [table for table, _ in RULES], ids=lambda table: table.name)
def test_every_row_matches_some_case_and_is_named_once(table: Table[Any]) -> None:
    met = {table.row(**case).rule for case in table.cases()}
    assert met == {row.rule for row in table.rows}
    assert len(met) == len(table.rows)


@pytest.mark.parametrize("table", [INIT, ADD, END_V1, END_V2, COMPLETE], ids=lambda table: table.name)
def test_no_verdict_takes_an_illegal_transition(table: Table[TransitionVerdict]) -> None:
    for case in table.cases():
        verdict = table.resolve(**case)
        if verdict.next_state is not None:
            assert is_legal(case["state"], verdict.next_state), case  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [INIT, ADD, END_V1, END_V2], ids=lambda table: table.name)
def test_error_records_nothing_but_the_fence(table: Table[TransitionVerdict]) -> None:
    for case in table.cases():
        verdict = table.resolve(**case)
        if verdict.error:
            assert verdict.image is None, case
            assert verdict.next_state in (None, FENCED), case


def test_all_numbered_rows_of_the_rules_exist() -> None:
    def numbers(table: Table[Any], prefix: str) -> set[int]:
        return {int(row.rule.removeprefix(prefix).split()[0]) for row in table.rows}

    assert numbers(INIT_REQUEST, "A.5/") == set(range(4, 10))
    assert numbers(INIT, "A.5/") == set(range(13, 23))
    assert numbers(ADD, "A.6/") == set(range(4, 11))
    assert numbers(VERIFY, "A.6 verify/") == set(range(3, 8))
    assert numbers(END_V1, "A.8 V1/") == set(range(3, 12))
    assert numbers(END_V2, "A.8 V2/") == set(range(2, 14))


# Rules A.8 epochs/1, A.8 epochs/2 and A.8 epochs/3.
@pytest.mark.parametrize(("state", "claim"), list(product(sorted(PERSISTED), Claim)))
def test_a_8_the_epochs_accepted_under_v2(state: TransactionState, claim: Claim) -> None:
    refusals = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING}
    for commit in (False, True):
        error = END_V2.resolve(state=state, pending=False, claim=claim, commit=commit).error
        assert (error not in refusals) is accepted_v2(state, claim)


@pytest.mark.parametrize("state", [DEAD, FENCED])
def test_in_memory_states_are_rejected_by_every_table(state: TransactionState) -> None:
    for table in (INIT, ADD, VERIFY, END_V1, END_V2, COMPLETE):
        case = {**next(iter(table.cases())), "state": state}
        with pytest.raises(AssertionError, match="cannot come about"):
            table.resolve(**case)


@pytest.mark.parametrize("state", [one for one in S if one not in PREPARED])
def test_only_a_prepared_transaction_completes(state: TransactionState) -> None:
    with pytest.raises(AssertionError):
        COMPLETE.resolve(state=state, rotates=False)


def test_ambiguous_or_incomplete_table_is_rejected() -> None:
    facts = {"one": (False, True)}
    with pytest.raises(AssertionError, match="claim"):
        Table("twice", facts, [Row("a", {}, 1), Row("b", {"one": (True,)}, 2)])
    with pytest.raises(AssertionError, match="claim"):
        Table("never", facts, [Row("a", {"one": (True,)}, 1)])
    with pytest.raises(AssertionError, match="no case meets"):
        Table("idle row", facts, [Row("a", {}, 1), Row("b", {"one": ()}, 2)])


# Rules A.3/1, A.3/2, A.3/3 and A.3/4.
def test_a_3_append_errors() -> None:
    translated = {3: 15, 19: 15, 20: 15, 7: 15, 6: 16, 56: 16, 10: -1, 18: -1}
    assert {code: APPEND_ERRORS.get(code, code) for code in ErrorCode} == {
        code: translated.get(code, code) for code in ErrorCode
    }


# Rules A.13 sender/1, A.13 sender/2, A.13 sender/3, A.13 sender/4 and A.13 sender/5.
def test_a_13_marker_responses() -> None:
    done, retry, cancel = {0, 43, 35}, {3, 6, 7, 19, 20, 56, 13}, {47, 52}
    found = {
        action: {code for code in ErrorCode if MARKER_ACTIONS.get(code, MarkerAction.ILLEGAL) is action}
        for action in MarkerAction
    }
    others = set(ErrorCode) - done - retry - cancel
    assert found == {
        MarkerAction.DONE: done,
        MarkerAction.RETRY: retry,
        MarkerAction.CANCEL: cancel,
        MarkerAction.ILLEGAL: others,
    }


# Rules A.13 completion/2 and A.13 completion/3.
def test_a_13_refused_completions() -> None:
    assert {15, 16} == RETRIED_COMPLETIONS
