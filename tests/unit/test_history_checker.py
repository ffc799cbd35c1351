"""The checker accepts correct histories, and finds each anomaly in an incorrect one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history.anomalies import ALLOWED_BY_KAFKA, Kind
from tests.support.history.checker import check
from tests.support.history.format import FAIL, INFO, INVOKE, OK, Op, from_line, to_line

A, B = "topic-0", "topic-1"
GROUP = "group"


class HistoryBuilder:
    """A history of consecutive operations, unless an operation's end is added later."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def begin(self, process: int, function: str, value: Any = None, **more: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops), process, INVOKE, function, value, **more))

    def end(self, process: int, kind: str, function: str, value: Any = None, **more: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops), process, kind, function, value, **more))

    def txn(self, process: int, *steps: list[Any], name: str = "t", kind: str = OK) -> None:
        """Add a transaction; the steps at its beginning follow from those at its end."""
        self.begin(process, "txn", _at_first(steps), transaction=name)
        self.end(process, kind, "txn", list(steps), transaction=name)

    def send(self, process: int, *steps: list[Any], kind: str = OK) -> None:
        self.begin(process, "send", _at_first(steps))
        self.end(process, kind, "send", list(steps))

    def poll(self, process: int, records: dict[str, list[list[Any]]], **more: Any) -> None:
        self.begin(process, "poll", None, **more)
        self.end(process, OK, "poll", [["poll", records]], **more)

    def drained(self, process: int, ends: dict[str, int]) -> None:
        self.begin(process, "drained")
        self.end(process, OK, "drained", ends)

    def committed(self, process: int, offsets: dict[str, int | None]) -> None:
        self.begin(process, "committed")
        self.end(process, OK, "committed", [["offsets", GROUP, offsets]])

    def kinds(self) -> list[str]:
        return [str(anomaly.kind) for anomaly in check(self.ops)]


def _at_first(steps: Sequence[list[Any]]) -> list[list[Any]]:
    first = {"send": lambda step: ["send", step[1], step[2][1]], "poll": lambda step: ["poll", {}]}
    return [first.get(step[0], list)(step) for step in steps]


@pytest.fixture
def history() -> HistoryBuilder:
    return HistoryBuilder()


def send(key: str, offset: int | None, value: int) -> list[Any]:
    return ["send", key, [offset, value]]


def test_valid_history_has_no_anomalies(history: HistoryBuilder) -> None:
    history.txn(1, send(A, 0, 1), send(B, 0, 2), name="t1")
    history.txn(2, send(A, 2, 3), name="t2", kind=FAIL)
    history.txn(3, send(A, None, 4), name="t3", kind=INFO)
    history.poll(9, {A: [[0, 1]], B: [[0, 2]]})
    history.poll(9, {A: [[4, 4]]})
    history.poll(8, {A: [[0, 1], [2, 3], [4, 4]]}, isolation="read_uncommitted")
    history.txn(4, ["poll", {A: [[0, 1]]}], send(B, 2, 5), ["offsets", GROUP, {A: 1}], name="t4")
    history.committed(7, {A: 1, B: None})
    history.poll(9, {B: [[2, 5]]})
    history.drained(9, {A: 6, B: 4})
    assert check(history.ops) == []


def three(history: HistoryBuilder) -> None:
    """Write three records, which one reader gets."""
    for offset in (0, 1, 2):
        history.txn(1, send(A, offset, offset + 10))
    history.poll(9, {A: [[0, 10], [1, 11], [2, 12]]})


def copied(history: HistoryBuilder, name: str, kind: str = OK) -> None:
    """Read the first record in a transaction that commits its offset."""
    history.txn(2 if name == "t2" else 3, ["poll", {A: [[0, 1]]}], ["offsets", GROUP, {A: 1}], name=name, kind=kind)


READ, READ_TWO = {A: [[0, 1]]}, {A: [[0, 10], [1, 11]]}
# What the history shows, the anomalies that are found, and the history.
CASES: list[tuple[str, list[str], Callable[[HistoryBuilder], object]]] = [
    ("another value", ["inconsistent-offsets"], lambda h: (h.txn(1, send(A, 0, 1)), h.poll(9, {A: [[0, 2]]}))),
    ("a value twice", ["duplicate"], lambda h: (h.txn(1, send(A, 0, 1)), h.poll(9, {A: [[0, 1], [1, 1]]}))),
    ("an aborted record", ["G1a"], lambda h: (h.txn(1, send(A, 0, 1), kind=FAIL), h.poll(9, READ))),
    (
        "an aborted record, to read_uncommitted",
        [],
        lambda h: (h.txn(1, send(A, 0, 1), kind=FAIL), h.poll(9, READ, isolation="read_uncommitted")),
    ),
    ("a failed send that was stored", [], lambda h: (h.send(1, send(A, None, 1), kind=INFO), h.poll(9, READ))),
    ("a read before its write", ["open-read"], lambda h: (h.poll(9, READ), h.txn(1, send(A, 0, 1)))),
    (
        "a lost write",
        ["lost-write"],
        lambda h: (h.txn(1, send(A, 0, 1)), h.txn(1, send(A, 2, 2)), h.poll(9, {A: [[2, 2]]})),
    ),
    (
        "a record beyond every reader's position",
        [],
        lambda h: (h.txn(1, send(A, 0, 1)), h.txn(1, send(A, 2, 2)), h.poll(9, READ)),
    ),
    (
        "no record of a write with an unknown outcome",
        [],
        lambda h: (
            h.txn(1, send(A, 0, 1), kind=INFO),
            h.txn(1, send(A, 2, 2)),
            h.poll(9, {A: [[2, 2]]}),
            h.drained(9, {A: 4}),
        ),
    ),
    *(
        (
            f"a part of a transaction that ended with {kind}",
            ["torn-transaction"],
            lambda h, kind=kind: (
                h.txn(1, send(A, 0, 1), send(B, 0, 2), kind=kind),
                h.txn(2, send(B, 2, 3), name="t2"),
                h.poll(9, {A: [[0, 1]], B: [[2, 3]]}),
            ),
        )
        for kind in (OK, INFO)
    ),
    ("a part not read yet", [], lambda h: (h.txn(1, send(A, 0, 1), send(B, 0, 2)), h.poll(9, READ))),
    ("a record never seen", ["unseen"], lambda h: (h.txn(1, send(A, None, 1)), h.drained(9, {A: 2}))),
    ("a reader that finished earlier", [], lambda h: (h.drained(9, {A: 2}), h.txn(1, send(A, None, 1)))),
    ("a skip", ["poll-skip"], lambda h: (three(h), h.poll(8, {A: [[0, 10]]}), h.poll(8, {A: [[2, 12]]}))),
    ("a skip in one poll", ["poll-skip"], lambda h: (three(h), h.poll(8, {A: [[0, 10], [2, 12]]}))),
    (
        "readers of both isolation levels",
        [],
        lambda h: (
            h.txn(1, send(A, 0, 10)),
            h.txn(1, send(A, 2, 11), kind=FAIL),
            h.txn(1, send(A, 4, 12)),
            h.poll(9, {A: [[0, 10], [2, 11], [4, 12]]}, isolation="read_uncommitted"),
            h.poll(8, {A: [[0, 10], [4, 12]]}),
        ),
    ),
    (
        "a reader that goes back",
        ["nonmonotonic-poll"],
        lambda h: (h.txn(1, send(A, 0, 10), send(A, 1, 11)), h.poll(9, READ_TWO), h.poll(9, {A: [[0, 10]]})),
    ),
    ("sends in another order", ["nonmonotonic-send"], lambda h: (h.send(1, send(A, 5, 1)), h.send(1, send(A, 3, 2)))),
    ("its own record", ["precommitted-read"], lambda h: h.txn(1, send(A, 0, 1), ["poll", READ])),
    (
        "transactions that read from each other",
        ["G1c"],
        lambda h: (
            h.begin(1, "txn", [["send", A, 1], ["poll", {}]], transaction="t1"),
            h.begin(2, "txn", [["send", B, 2], ["poll", {}]], transaction="t2"),
            h.end(1, OK, "txn", [send(A, 0, 1), ["poll", {B: [[0, 2]]}]], transaction="t1"),
            h.end(2, OK, "txn", [send(B, 0, 2), ["poll", READ]], transaction="t2"),
        ),
    ),
    (
        "a record consumed twice",
        ["consumed-twice"],
        lambda h: (h.txn(1, send(A, 0, 1)), copied(h, "t2"), copied(h, "t3")),
    ),
    (
        "a record consumed again after a failure",
        [],
        lambda h: (h.txn(1, send(A, 0, 1)), copied(h, "t2", FAIL), copied(h, "t3")),
    ),
    (
        "offsets of a failed transaction",
        ["aborted-offset"],
        lambda h: (h.txn(2, ["offsets", GROUP, {A: 5}], kind=FAIL), h.committed(9, {A: 5})),
    ),
    *(
        (
            f"lost offsets, {found} instead",
            ["lost-offset"],
            lambda h, found=found: (
                h.txn(2, ["offsets", GROUP, {A: 3}], name="t1"),
                h.txn(2, ["offsets", GROUP, {A: 5}], name="t2"),
                h.committed(9, {A: found}),
            ),
        )
        for found in (3, None)
    ),
    (
        "offsets never sent",
        ["impossible-offset"],
        lambda h: (h.committed(9, {A: 5}), h.txn(2, ["offsets", GROUP, {A: 5}])),
    ),
    (
        "offsets with an unknown outcome, absent and present",
        [],
        lambda h: (
            h.txn(2, ["offsets", GROUP, {A: 5}], kind=INFO),
            h.committed(8, {A: None}),
            h.committed(9, {A: 5}),
        ),
    ),
]


@pytest.mark.parametrize(("name", "kinds", "make"), CASES, ids=[case[0] for case in CASES])
def test_anomalies_of_a_history_are_found(
    history: HistoryBuilder, name: str, kinds: list[str], make: Callable[[HistoryBuilder], object]
) -> None:
    make(history)
    assert history.kinds() == kinds, name


def test_partly_visible_unfinished_transaction_is_detected(history: HistoryBuilder) -> None:
    history.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    history.poll(9, {A: [[0, 1]]})
    history.drained(9, {A: 2, B: 2})
    # The time of the write is unknown, so it may have been after the end that the reader reached.
    assert history.kinds() == []
    history.end(1, INFO, "txn", [["send", A, [None, 1]], ["send", B, [None, 2]]], transaction="t1")
    history.drained(8, {A: 2, B: 2})
    assert history.kinds() == ["torn-transaction"]


@pytest.mark.parametrize("why", ["rebalanced", "seek", "assign", "failed"])
def test_reader_after_a_rebalance_may_go_back(history: HistoryBuilder, why: str) -> None:
    history.txn(1, send(A, 0, 10), send(A, 1, 11))
    history.poll(9, {A: [[0, 10], [1, 11]]})
    if why in ("seek", "assign"):
        history.begin(9, why)
        history.end(9, OK, why)
    if why == "failed":
        history.txn(9, ["poll", {}], name="t9", kind=FAIL)
    history.poll(9, {A: [[0, 10]]}, rebalanced=why == "rebalanced")
    assert history.kinds() == []


def test_interleaved_writes_are_allowed_by_default(history: HistoryBuilder) -> None:
    history.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    history.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    history.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2)], transaction="t1")
    history.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    assert history.kinds() == []
    assert [each.kind for each in check(history.ops, allowed=frozenset())] == [Kind.WRITE_CYCLE]


def test_read_write_cycle_is_allowed_by_default(history: HistoryBuilder) -> None:
    # The second is open in A, where the first follows it, and reads in B a record that the first committed.
    history.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    history.begin(2, "txn", [["send", A, 3], ["poll", {}]], transaction="t2")
    history.end(1, OK, "txn", [send(A, 1, 1), send(B, 0, 2)], transaction="t1")
    history.end(2, OK, "txn", [send(A, 0, 3), ["poll", {B: [[0, 2]]}]], transaction="t2")
    assert history.kinds() == []
    [found] = check(history.ops, allowed=frozenset())
    assert found.kind is Kind.MIXED_CYCLE
    assert "which t2 of 2 (line 1) reads" in found.story
    assert "which t1 of 1 (line 0) follows" in found.story


def test_cycles_of_one_kind_are_not_reported_as_mixed(history: HistoryBuilder) -> None:
    history.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    history.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    history.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2)], transaction="t1")
    history.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    # A transaction that only reads both is not part of a cycle.
    history.txn(3, ["poll", {A: [[0, 1], [1, 3]]}], name="t3")
    assert [each.kind for each in check(history.ops, allowed=frozenset())] == [Kind.WRITE_CYCLE]


def test_mixed_cycle_is_reported_beside_a_shorter_write_cycle(history: HistoryBuilder) -> None:
    key = "topic-2"
    history.begin(1, "txn", [["send", A, 1], ["send", B, 2], ["poll", {}]], transaction="t1")
    history.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    history.begin(3, "txn", [["send", A, 5], ["send", key, 6]], transaction="t3")
    history.end(3, OK, "txn", [send(A, 2, 5), send(key, 0, 6)], transaction="t3")
    history.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    history.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2), ["poll", {key: [[0, 6]]}]], transaction="t1")
    found = {each.kind: each.story for each in check(history.ops, allowed=frozenset())}
    assert found.keys() == {Kind.WRITE_CYCLE, Kind.MIXED_CYCLE}
    assert "which t1 of 1 (line 0) reads" in found[Kind.MIXED_CYCLE]


def test_reading_from_a_predecessor_is_not_a_cycle(history: HistoryBuilder) -> None:
    history.txn(1, send(A, 0, 1), name="t1")
    history.txn(2, ["poll", {A: [[0, 1]]}], send(A, 2, 3), name="t2")
    assert check(history.ops, allowed=frozenset()) == []


def test_every_anomaly_kind_has_an_example() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    missing = [
        kind.value
        for kind in Kind
        if (f'"{kind.value}"' not in source and kind not in ALLOWED_BY_KAFKA)
        or (f"Kind.{kind.name}" not in source and kind in ALLOWED_BY_KAFKA)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([Op(0, 0, 1, OK, "poll", [])], "ends what it has not begun"),
        ([Op(0, 0, 1, INVOKE, "poll"), Op(1, 1, 1, INVOKE, "poll")], "before its last one ended"),
        ([Op(0, 0, 1, INVOKE, "send", [["send", A, 1], ["send", A, 1]])], "values name records"),
    ],
)
def test_malformed_history_is_refused(ops: list[Op], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(ops)


def test_history_lines_round_trip() -> None:
    op = Op(3, 4, "p1", OK, "txn", [["send", A, [None, 1]]], "t", "read_uncommitted", True, "why")
    assert from_line(to_line(op)) == op
    with pytest.raises(ValueError, match="not a line of a history"):
        from_line('{"i": 1}')


@st.composite
def true_histories(draw: st.DrawFn) -> HistoryBuilder:
    """Write transactions into two logs, one after the other, and read them as Kafka allows."""
    history, value = HistoryBuilder(), 0
    logs: dict[str, list[tuple[int, int]]] = {A: [], B: []}
    ends = {A: 0, B: 0}
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([OK, OK, FAIL, INFO]))
        committed = kind == OK or (kind == INFO and draw(st.booleans()))
        steps = []
        for key in draw(st.lists(st.sampled_from([A, B]), min_size=1, max_size=4)):
            value += 1
            known = kind != INFO and draw(st.booleans())
            steps.append(send(key, ends[key] if known else None, value))
            if committed:
                logs[key].append((ends[key], value))
            ends[key] += 1
        for key in {step[1] for step in steps}:
            ends[key] += 1
        history.txn(number % 3, *steps, name=f"t{number}", kind=kind)
        for key in draw(st.lists(st.sampled_from([A, B]), unique=True)):
            # A separate reader for each poll: it may start at any offset and returns every record from there on.
            tail = logs[key][draw(st.integers(0, len(logs[key]))) :]
            history.poll(100 + len(history.ops), {key: [list(each) for each in tail]})
    for key, log in logs.items():
        history.poll(10, {key: [list(each) for each in log]})
    history.drained(10, ends)
    return history


@given(true_histories())
def test_correct_histories_pass(history: HistoryBuilder) -> None:
    assert check(history.ops) == []


@given(true_histories(), st.data())
def test_committed_record_never_read_is_always_found(history: HistoryBuilder, data: st.DataObject) -> None:
    sure = [value for op in history.ops if op.kind == OK and op.function == "txn" for _, _, value in op.sends()]
    if not sure:
        return
    lost = data.draw(st.sampled_from(sure))
    ops = [
        op
        if op.function != "poll" or op.kind != OK
        else Op(
            op.index,
            op.time_ns,
            op.process,
            op.kind,
            op.function,
            [["poll", {key: [each for each in records if each[1] != lost] for key, records in op.value[0][1].items()}]],
        )
        for op in history.ops
    ]
    assert {each.kind for each in check(ops)} & {Kind.LOST_WRITE, Kind.TORN, Kind.UNSEEN}
