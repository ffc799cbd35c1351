"""Each row of the recovery table, and each combination of few outcomes."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TransactionState
from spark_eos.errors import LostTransactionError, UnansweredError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.decision import Decision, Intervention, Restart
from spark_eos.sink.decision import OperatorAction as Word
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import descriptions, settlement
from spark_eos.sink.protocol.action_table import Fate, SettlementAction, action_for, rule_for
from spark_eos.sink.protocol.settlement import must_write
from tests.support.spark_eos.driving import end_all, settle
from tests.support.spark_eos.interceptors import before, instead
from tests.support.spark_eos.sink_cluster import MemoryCluster

BY_LETTER = {fate.name[0]: fate for fate in Fate}
# Open, Committed, Lost, Hidden, Unknown.
ROWS = {
    SettlementAction.CLOSED: ("", "C"),
    SettlementAction.WRITE_AGAIN: ("L",),
    SettlementAction.WRITE_LOST: ("CL",),
    SettlementAction.COMMIT: ("O", "OC", "OCL", "OCH", "OCU", "OCLH", "OCLU", "OCHU", "OCLHU"),
    SettlementAction.ABORT: ("OL", "OLH", "OLU", "OLHU"),
    SettlementAction.WAIT: ("OH", "OHU", "H", "CH", "LH", "HU", "CLH", "CHU", "LHU", "CLHU"),
    SettlementAction.STOP: ("OU", "U", "CU", "LU", "CLU"),
}


def fates_in(letters: str) -> frozenset[Fate]:
    return frozenset(BY_LETTER[letter] for letter in letters)


def decision_of(transactions: Sequence[PreparedTransaction] = (), word: Intervention | None = None) -> Decision:
    return Decision("p", "q", "r", 3, 1, len(transactions), 0, tuple(transactions), intervention=word)


EVERY = [frozenset(found) for count in range(len(Fate) + 1) for found in itertools.combinations(Fate, count)]
TABLE = {found: rule_for(decision_of(), found) for found in EVERY}


@pytest.mark.parametrize("action", SettlementAction)
def test_recovery_table_row(action: SettlementAction) -> None:
    assert {fates for fates, rule in TABLE.items() if rule.action is action} == set(map(fates_in, ROWS[action]))


def test_every_combination_has_one_row() -> None:
    assert Counter(fates_in(letters) for rows in ROWS.values() for letters in rows) == Counter(EVERY)


WORDS = {
    "complete": Intervention(Word.COMPLETE, "ann", 5),
    "rewrite": Intervention(Word.ABORT, "ann", 5, "", Restart.REWRITE),
    "skip": Intervention(Word.ABORT, "ann", 5, "", Restart.SKIP),
}


@pytest.mark.parametrize("fates", TABLE, ids=lambda fates: "".join(sorted(fate.name[0] for fate in fates)))
def test_operator_intervention_changes_only_its_own_rows(fates: frozenset[Fate]) -> None:
    usual = TABLE[fates].action
    found = {name: action_for(decision_of(word=word), fates) for name, word in WORDS.items()}
    assert found["complete"] is (SettlementAction.COMMIT if fates == fates_in("OU") else usual)
    assert found["rewrite"] is (SettlementAction.ABORT if Fate.OPEN in fates else usual)
    assert found["skip"] is (SettlementAction.ABORT if Fate.OPEN in fates else SettlementAction.CLOSED)
    for word in WORDS.values():
        rule = rule_for(decision_of(word=word), fates)
        assert rule.reason or rule.action is not SettlementAction.ABORT


# Every combination of few outcomes, on a cluster in memory.


def splits(counts: Sequence[int] = (1, 2, 3)) -> Iterator[str]:
    for count in counts:
        yield from map("".join, itertools.product("OCLHU", repeat=count))


def make(cluster: MemoryCluster, split: str, monkeypatch: pytest.MonkeyPatch) -> list[PreparedTransaction]:
    """Prepare one transaction for each letter and bring it to the outcome of the letter."""
    made = [cluster.prepare(f"id{number}", number) for number in range(len(split))]
    for transaction, letter in zip(made, split, strict=True):
        name = transaction.transactional_id
        if letter == "C":
            end_all(cluster, [transaction], commit=True)
        elif letter == "L":
            cluster.time_out(name)
        elif letter in "HU":
            cluster.time_out(name)
            cluster.forgotten.add(name)
            if letter == "U":
                cluster.logs[next(iter(cluster.ids[name].partitions))] = []
    view = cluster.view
    away = {number for number, letter in enumerate(split) if letter == "H"}

    def view_of_leaders(place: object, offset: int, wait_ms: int) -> object:
        if place.partition in away:  # type: ignore[attr-defined]
            raise UnansweredError("its leader is offline")
        return view(place, offset, wait_ms=wait_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster, "view", view_of_leaders)
    return made


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recovery ask again at once, and look a few times at what stays open: a minute has 300 looks."""
    monkeypatch.setattr(descriptions, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(settlement, "_PAUSE_SECONDS", 10)


@pytest.mark.parametrize("version", [1, 2])
def test_every_split_of_small_sets_is_consistent(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in splits():
        cluster = MemoryCluster(version=version)
        with monkeypatch.context() as patch:
            transactions = make(cluster, split, patch)
            settled = settle(cluster, decision_of(transactions))
        was = fates_in(split)
        is_committed = [cluster.ids[t.transactional_id].state is TransactionState.COMPLETE_COMMIT for t in transactions]
        expected = TABLE[was].action
        for letter, committed in zip(split, is_committed, strict=True):
            assert committed is (letter == "C" or (letter == "O" and expected is SettlementAction.COMMIT)), split
        if expected in (SettlementAction.WAIT, SettlementAction.STOP):
            assert settled.action is expected, split
            assert [t.split for t in settled.still_open] == [at for at, each in enumerate(split) if each == "O"], split
        if was == fates_in("OL"):
            assert settled.took_no_effect, split
        if was <= fates_in("OC"):
            assert settled.took_effect and settled.is_closed, split


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("policy", OnLostTransaction)
def test_open_transactions_beside_a_loss_are_aborted_and_all_is_rewritten(
    version: int, policy: OnLostTransaction
) -> None:
    cluster = MemoryCluster(version=version)
    decision = decision_of([cluster.prepare(f"id{number}", number) for number in range(3)])
    cluster.time_out("id1")
    settled = settle(cluster, decision)
    assert settled.took_no_effect and len(settled.lost) == 3
    assert [must_write(settled, split, policy) for split in range(3)] == [True] * 3
    assert {each.state for each in cluster.ids.values()} == {TransactionState.COMPLETE_ABORT}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("arrives", [True, False])
def test_abort_without_a_clear_response_is_looked_up_again(version: int, arrives: bool) -> None:
    cluster, asked = MemoryCluster(version=version), list[int]()
    decision = decision_of([cluster.prepare("id0", 0), cluster.prepare("id1", 1)])
    cluster.time_out("id1")
    if arrives:
        cluster.lose_answer_of = {"id0"}
    else:
        instead(cluster, "end_transactions", lambda: {"id0": EndAnswer(None)}, times=3)
    before(cluster, "end_transactions", lambda: asked.append(1), times=9)
    assert settle(cluster, decision).took_no_effect
    assert len(asked) == (1 if arrives else 4)


def test_persistently_failing_abort_stops_without_claiming_visibility(cluster: MemoryCluster) -> None:
    decision = decision_of([cluster.prepare("id0", 0), cluster.prepare("id1", 1)])
    cluster.time_out("id1")
    instead(cluster, "end_transactions", lambda: {"id0": EndAnswer(None)}, times=1_000)
    settled = settle(cluster, decision)
    account = r"task 0: open, id0 .*task 1: lost, id1 .*stay lost"
    for policy in OnLostTransaction:
        with pytest.raises(settlement.TransactionError, match=account):
            must_write(settled, 0, policy)


def test_open_transaction_beside_an_unknown_one_is_left_to_an_operator(cluster: MemoryCluster) -> None:
    decision = decision_of([cluster.prepare("id0", 0), cluster.prepare("id1", 1)])
    cluster.forgotten = {"id1"}
    cluster.logs[cluster.ids["id1"].partitions[0]] = []
    settled = settle(cluster, decision)
    assert cluster.ids["id0"].state is TransactionState.ONGOING
    with pytest.raises(LostTransactionError, match=r"task 1: fate unknown.*task 0: open.*HOST:PORT complete.*restart"):
        must_write(settled, 0, OnLostTransaction.REWRITE)
    completed = settle(cluster, replace(decision, revision=1, intervention=WORDS["complete"]))
    assert [t.split for t in completed.committed] == [0]


@pytest.mark.parametrize("version", [1, 2])
def test_commit_in_flight_makes_no_aborted_transaction_visible(version: int) -> None:
    """The driver was paused between its decision and its EndTxn; a later transaction of the id has another epoch."""
    cluster = MemoryCluster(version=version)
    transactions = [cluster.prepare("id0", 0), cluster.prepare("id1", 1)]
    cluster.time_out("id1")
    assert settle(cluster, decision_of(transactions)).took_no_effect
    for _ in range(2):
        assert end_all(cluster, transactions, commit=True) == set()
        # The owner uses the id again.
        if version == 1:
            cluster.init_producer_id("id0", 60_000)
        cluster.prepare("id0", 0)
    assert not any(cluster.outcomes.values())
    answer = cluster.end_transactions([OpenTransaction("id0", cluster.ids["id0"].identity, version)], True)
    assert answer["id0"].code is ErrorCode.NONE
