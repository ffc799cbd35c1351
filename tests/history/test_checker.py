"""Show the checker one bad history for each anomaly, and good ones that it must let pass."""

from collections.abc import Sequence
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


class Told:
    """Tell a history, an operation after the other unless its end is told later."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def begin(self, process: int, function: str, value: Any = None, **more: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops), process, INVOKE, function, value, **more))

    def end(self, process: int, kind: str, function: str, value: Any = None, **more: Any) -> None:
        self.ops.append(Op(len(self.ops), len(self.ops), process, kind, function, value, **more))

    def txn(self, process: int, *steps: list[Any], name: str = "t", kind: str = OK) -> None:
        """Steps are told as they end; those of its beginning follow from them."""
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
def told() -> Told:
    return Told()


def send(key: str, offset: int | None, value: int) -> list[Any]:
    return ["send", key, [offset, value]]


def test_a_good_history(told: Told) -> None:
    told.txn(1, send(A, 0, 1), send(B, 0, 2), name="t1")
    told.txn(2, send(A, 2, 3), name="t2", kind=FAIL)
    told.txn(3, send(A, None, 4), name="t3", kind=INFO)
    told.poll(9, {A: [[0, 1]], B: [[0, 2]]})
    told.poll(9, {A: [[4, 4]]})
    told.poll(8, {A: [[0, 1], [2, 3], [4, 4]]}, isolation="read_uncommitted")
    told.txn(4, ["poll", {A: [[0, 1]]}], send(B, 2, 5), ["offsets", GROUP, {A: 1}], name="t4")
    told.committed(7, {A: 1, B: None})
    told.poll(9, {B: [[2, 5]]})
    told.drained(9, {A: 6, B: 4})
    assert check(told.ops) == []


def test_inconsistent_offsets(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    told.poll(9, {A: [[0, 2]]})
    assert told.kinds() == ["inconsistent-offsets"]


def test_a_duplicate(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    told.poll(9, {A: [[0, 1], [1, 1]]})
    assert told.kinds() == ["duplicate"]


def test_an_aborted_read(told: Told) -> None:
    told.txn(1, send(A, 0, 1), kind=FAIL)
    told.poll(9, {A: [[0, 1]]})
    assert told.kinds() == ["G1a"]


def test_what_is_not_committed_shows_to_those_who_ask_for_it(told: Told) -> None:
    told.txn(1, send(A, 0, 1), kind=FAIL)
    told.poll(9, {A: [[0, 1]]}, isolation="read_uncommitted")
    assert told.kinds() == []


def test_a_failed_send_outside_of_a_transaction_may_have_been_stored(told: Told) -> None:
    told.send(1, send(A, None, 1), kind=INFO)
    told.poll(9, {A: [[0, 1]]})
    assert told.kinds() == []


def test_a_read_before_its_write(told: Told) -> None:
    told.poll(9, {A: [[0, 1]]})
    told.txn(1, send(A, 0, 1))
    assert told.kinds() == ["open-read"]


def test_a_lost_write(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    told.txn(1, send(A, 2, 2))
    told.poll(9, {A: [[2, 2]]})
    assert told.kinds() == ["lost-write"]


def test_what_no_reader_has_reached_is_not_lost(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    told.txn(1, send(A, 2, 2))
    told.poll(9, {A: [[0, 1]]})
    assert told.kinds() == []


def test_a_write_of_unknown_fate_may_be_missing(told: Told) -> None:
    told.txn(1, send(A, 0, 1), kind=INFO)
    told.txn(1, send(A, 2, 2))
    told.poll(9, {A: [[2, 2]]})
    told.drained(9, {A: 4})
    assert told.kinds() == []


@pytest.mark.parametrize("kind", [OK, INFO])
def test_a_torn_transaction(told: Told, kind: str) -> None:
    told.txn(1, send(A, 0, 1), send(B, 0, 2), kind=kind)
    told.txn(2, send(B, 2, 3), name="t2")
    told.poll(9, {A: [[0, 1]], B: [[2, 3]]})
    assert told.kinds() == ["torn-transaction"]


def test_a_part_that_is_still_to_be_read_tears_nothing(told: Told) -> None:
    told.txn(1, send(A, 0, 1), send(B, 0, 2))
    told.poll(9, {A: [[0, 1]]})
    assert told.kinds() == []


def test_a_transaction_that_was_never_ended_and_is_seen_in_part(told: Told) -> None:
    told.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    told.poll(9, {A: [[0, 1]]})
    told.drained(9, {A: 2, B: 2})
    # Nobody knows when it was written, so it may have been after the end that was read to.
    assert told.kinds() == []
    told.end(1, INFO, "txn", [["send", A, [None, 1]], ["send", B, [None, 2]]], transaction="t1")
    told.drained(8, {A: 2, B: 2})
    assert told.kinds() == ["torn-transaction"]


def test_unseen(told: Told) -> None:
    told.txn(1, send(A, None, 1))
    told.drained(9, {A: 2})
    assert told.kinds() == ["unseen"]


def test_a_reader_that_was_done_before(told: Told) -> None:
    told.drained(9, {A: 2})
    told.txn(1, send(A, None, 1))
    assert told.kinds() == []


def test_a_poll_that_skips(told: Told) -> None:
    for offset in (0, 1, 2):
        told.txn(1, send(A, offset, offset + 10))
    told.poll(9, {A: [[0, 10], [1, 11], [2, 12]]})
    told.poll(8, {A: [[0, 10]]})
    told.poll(8, {A: [[2, 12]]})
    assert told.kinds() == ["poll-skip"]


def test_a_poll_that_skips_within_itself(told: Told) -> None:
    for offset in (0, 1, 2):
        told.txn(1, send(A, offset, offset + 10))
    told.poll(9, {A: [[0, 10], [1, 11], [2, 12]]})
    told.poll(8, {A: [[0, 10], [2, 12]]})
    assert told.kinds() == ["poll-skip"]


def test_levels_of_isolation_are_no_measure_for_each_other(told: Told) -> None:
    told.txn(1, send(A, 0, 10))
    told.txn(1, send(A, 2, 11), kind=FAIL)
    told.txn(1, send(A, 4, 12))
    told.poll(9, {A: [[0, 10], [2, 11], [4, 12]]}, isolation="read_uncommitted")
    told.poll(8, {A: [[0, 10], [4, 12]]})
    assert told.kinds() == []


def test_a_poll_that_goes_back(told: Told) -> None:
    told.txn(1, send(A, 0, 10), send(A, 1, 11))
    told.poll(9, {A: [[0, 10], [1, 11]]})
    told.poll(9, {A: [[0, 10]]})
    assert told.kinds() == ["nonmonotonic-poll"]


@pytest.mark.parametrize("why", ["rebalanced", "seek", "assign", "failed"])
def test_a_reader_that_was_moved_may_go_back(told: Told, why: str) -> None:
    told.txn(1, send(A, 0, 10), send(A, 1, 11))
    told.poll(9, {A: [[0, 10], [1, 11]]})
    if why in ("seek", "assign"):
        told.begin(9, why)
        told.end(9, OK, why)
    if why == "failed":
        told.txn(9, ["poll", {}], name="t9", kind=FAIL)
    told.poll(9, {A: [[0, 10]]}, rebalanced=why == "rebalanced")
    assert told.kinds() == []


def test_sends_that_change_places(told: Told) -> None:
    told.send(1, send(A, 5, 1))
    told.send(1, send(A, 3, 2))
    assert told.kinds() == ["nonmonotonic-send"]


def test_a_transaction_that_reads_its_own_record(told: Told) -> None:
    told.txn(1, send(A, 0, 1), ["poll", {A: [[0, 1]]}])
    assert told.kinds() == ["precommitted-read"]


def test_transactions_that_read_from_each_other(told: Told) -> None:
    told.begin(1, "txn", [["send", A, 1], ["poll", {}]], transaction="t1")
    told.begin(2, "txn", [["send", B, 2], ["poll", {}]], transaction="t2")
    told.end(1, OK, "txn", [send(A, 0, 1), ["poll", {B: [[0, 2]]}]], transaction="t1")
    told.end(2, OK, "txn", [send(B, 0, 2), ["poll", {A: [[0, 1]]}]], transaction="t2")
    assert told.kinds() == ["G1c"]


def test_writes_that_interleave_are_allowed_unless_asked_for(told: Told) -> None:
    told.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    told.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    told.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2)], transaction="t1")
    told.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    assert told.kinds() == []
    assert [each.kind for each in check(told.ops, allowed=frozenset())] == [Kind.WRITE_CYCLE]


def test_a_circle_of_reads_and_writes_is_allowed_unless_asked_for(told: Told) -> None:
    # The second is open in A, where the first comes after it, and reads in B what the first has committed meanwhile.
    told.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    told.begin(2, "txn", [["send", A, 3], ["poll", {}]], transaction="t2")
    told.end(1, OK, "txn", [send(A, 1, 1), send(B, 0, 2)], transaction="t1")
    told.end(2, OK, "txn", [send(A, 0, 3), ["poll", {B: [[0, 2]]}]], transaction="t2")
    assert told.kinds() == []
    [found] = check(told.ops, allowed=frozenset())
    assert found.kind is Kind.MIXED_CYCLE
    assert "which t2 of 2 (line 1) reads" in found.story
    assert "which t1 of 1 (line 0) follows" in found.story


def test_circles_of_one_kind_are_not_told_as_mixed(told: Told) -> None:
    told.begin(1, "txn", [["send", A, 1], ["send", B, 2]], transaction="t1")
    told.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    told.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2)], transaction="t1")
    told.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    # A reader of both that nobody follows is in no circle.
    told.txn(3, ["poll", {A: [[0, 1], [1, 3]]}], name="t3")
    assert [each.kind for each in check(told.ops, allowed=frozenset())] == [Kind.WRITE_CYCLE]


def test_a_mixed_circle_is_told_beside_a_shorter_one_of_writes_alone(told: Told) -> None:
    key = "topic-2"
    told.begin(1, "txn", [["send", A, 1], ["send", B, 2], ["poll", {}]], transaction="t1")
    told.begin(2, "txn", [["send", A, 3], ["send", B, 4]], transaction="t2")
    told.begin(3, "txn", [["send", A, 5], ["send", key, 6]], transaction="t3")
    told.end(3, OK, "txn", [send(A, 2, 5), send(key, 0, 6)], transaction="t3")
    told.end(2, OK, "txn", [send(A, 1, 3), send(B, 0, 4)], transaction="t2")
    told.end(1, OK, "txn", [send(A, 0, 1), send(B, 1, 2), ["poll", {key: [[0, 6]]}]], transaction="t1")
    found = {each.kind: each.story for each in check(told.ops, allowed=frozenset())}
    assert found.keys() == {Kind.WRITE_CYCLE, Kind.MIXED_CYCLE}
    assert "which t1 of 1 (line 0) reads" in found[Kind.MIXED_CYCLE]


def test_reading_what_one_follows_is_no_circle(told: Told) -> None:
    told.txn(1, send(A, 0, 1), name="t1")
    told.txn(2, ["poll", {A: [[0, 1]]}], send(A, 2, 3), name="t2")
    assert check(told.ops, allowed=frozenset()) == []


def test_a_record_that_is_consumed_twice(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    for process, name in ((2, "t2"), (3, "t3")):
        told.txn(process, ["poll", {A: [[0, 1]]}], ["offsets", GROUP, {A: 1}], name=name)
    assert told.kinds() == ["consumed-twice"]


def test_a_record_consumed_again_after_the_first_time_failed(told: Told) -> None:
    told.txn(1, send(A, 0, 1))
    told.txn(2, ["poll", {A: [[0, 1]]}], ["offsets", GROUP, {A: 1}], name="t2", kind=FAIL)
    told.txn(3, ["poll", {A: [[0, 1]]}], ["offsets", GROUP, {A: 1}], name="t3")
    assert told.kinds() == []


def test_offsets_of_a_transaction_that_failed(told: Told) -> None:
    told.txn(2, ["offsets", GROUP, {A: 5}], kind=FAIL)
    told.committed(9, {A: 5})
    assert told.kinds() == ["aborted-offset"]


@pytest.mark.parametrize("found", [3, None])
def test_offsets_that_are_lost(told: Told, found: int | None) -> None:
    told.txn(2, ["offsets", GROUP, {A: 3}], name="t1")
    told.txn(2, ["offsets", GROUP, {A: 5}], name="t2")
    told.committed(9, {A: found})
    assert told.kinds() == ["lost-offset"]


def test_offsets_out_of_nowhere(told: Told) -> None:
    told.committed(9, {A: 5})
    told.txn(2, ["offsets", GROUP, {A: 5}])
    assert told.kinds() == ["impossible-offset"]


def test_offsets_of_unknown_fate_may_be_there_or_not(told: Told) -> None:
    told.txn(2, ["offsets", GROUP, {A: 5}], kind=INFO)
    told.committed(8, {A: None})
    told.committed(9, {A: 5})
    assert told.kinds() == []


def test_every_kind_has_its_bad_history() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    untold = [
        kind.value
        for kind in Kind
        if (f'"{kind.value}"' not in source and kind not in ALLOWED_BY_KAFKA)
        or (f"Kind.{kind.name}" not in source and kind in ALLOWED_BY_KAFKA)
    ]
    assert untold == []


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([Op(0, 0, 1, OK, "poll", [])], "ends what it has not begun"),
        ([Op(0, 0, 1, INVOKE, "poll"), Op(1, 1, 1, INVOKE, "poll")], "before its last one ended"),
        ([Op(0, 0, 1, INVOKE, "send", [["send", A, 1], ["send", A, 1]])], "values name records"),
    ],
)
def test_what_is_no_history(ops: list[Op], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(ops)


def test_lines_round_trip() -> None:
    op = Op(3, 4, "p1", OK, "txn", [["send", A, [None, 1]]], "t", "read_uncommitted", True, "why")
    assert from_line(to_line(op)) == op
    with pytest.raises(ValueError, match="not a line of a history"):
        from_line('{"i": 1}')


@st.composite
def true_histories(draw: st.DrawFn) -> Told:
    """Write transactions into two logs, one after the other, and read them as Kafka lets one read them."""
    told, value = Told(), 0
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
        told.txn(number % 3, *steps, name=f"t{number}", kind=kind)
        for key in draw(st.lists(st.sampled_from([A, B]), unique=True)):
            # A reader of its own for each poll: it may begin anywhere, and leaves nothing out from there on.
            tail = logs[key][draw(st.integers(0, len(logs[key]))) :]
            told.poll(100 + len(told.ops), {key: [list(each) for each in tail]})
    for key, log in logs.items():
        told.poll(10, {key: [list(each) for each in log]})
    told.drained(10, ends)
    return told


@given(true_histories())
def test_true_histories_pass(told: Told) -> None:
    assert check(told.ops) == []


@given(true_histories(), st.data())
def test_a_committed_record_that_nobody_sees_is_always_found(told: Told, data: st.DataObject) -> None:
    sure = [value for op in told.ops if op.kind == OK and op.function == "txn" for _, _, value in op.sends()]
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
        for op in told.ops
    ]
    assert {each.kind for each in check(ops)} & {Kind.LOST_WRITE, Kind.TORN, Kind.UNSEEN}
