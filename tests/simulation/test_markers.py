"""Markers are counted for each transaction and partition; only the documented repetitions are legitimate."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.simulation.history import TXN, History
from tests.simulation.judge import check_lost
from tests.simulation.markers import ABORT, COMMIT, Marker, MarkerWatch, Span, check_markers
from tests.simulation.producers import CLASSIC, V2
from tests.support.history.format import FAIL, INFO, INVOKE, OK

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
PRODUCER_ID = 7
_ADD = m.AddPartitionsToTxnRequest.API_KEY.to_bytes(2, "big")


class MarkerScenario:
    """One producer's log and history; records of the new protocol have one epoch less than their marker."""

    def __init__(self, protocol: int = V2) -> None:
        self.history = History()
        self.plan = SimpleNamespace(topics={"t": (2, {})}, is_undisturbed=False)
        self.watch = MarkerWatch()
        self.users = {PRODUCER_ID: {("p", protocol)}}
        self.network = SimpleNamespace(late=set())
        controller = SimpleNamespace(coordinator_partition_of=lambda *_: OFFSETS)
        self.server = SimpleNamespace(cluster=SimpleNamespace(controller=controller))
        self.scanned: dict[TopicPartition, list[Span]] = {}

    def txn(self, name: str, kind: str, *sends: tuple[TopicPartition, str], offset: int | None = None) -> None:
        plan = [["send", f"{place.topic}-{place.partition}", value] for place, value in sends]
        done: list[Any] = [["send", key, [None, value]] for _, key, value in plan]
        if offset is not None:
            done.append(["offsets", "group", {"in-0": offset}])
        self.history.note(0, "p", INVOKE, TXN, plan, transaction=name)
        self.history.note(0, "p", kind, TXN, done, transaction=name)

    def log(self, place: TopicPartition, epoch: int, values: list[str], *markers: Marker) -> None:
        records = [SimpleNamespace(offset=at, value=value.encode()) for at, value in enumerate(values)]
        self._span(place, epoch, records, markers)

    def offsets(self, epoch: int, offset: int, *markers: Marker) -> None:
        key = b"..in\0\0\0\0"
        records = [SimpleNamespace(offset=0, key=key, value=b"\0\3" + offset.to_bytes(8, "big"))]
        self._span(OFFSETS, epoch, records, markers)

    def _span(self, place: TopicPartition, epoch: int, records: list[Any], markers: tuple[Marker, ...]) -> None:
        data = [SimpleNamespace(producer_epoch=epoch, base_offset=0, records=records)] if records else []
        self.scanned.setdefault(place, []).append(Span(PRODUCER_ID, data, list(markers)))  # type: ignore[arg-type]

    def problems(self) -> list[str]:
        return list(check_markers(self, self.scanned))  # type: ignore[arg-type]


def commit(offset: int, epoch: int = 1) -> Marker:
    return Marker(offset, epoch, COMMIT)


def abort(offset: int, epoch: int = 1) -> Marker:
    return Marker(offset, epoch, ABORT)


def test_one_marker_per_partition_is_valid() -> None:
    scenario = MarkerScenario()
    scenario.txn("a", OK, (T0, "x"), (T1, "y"))
    scenario.log(T0, 0, ["x"], commit(1))
    scenario.log(T1, 0, ["y"], commit(1))
    scenario.txn("b", FAIL, (T0, "z"))
    scenario.log(T0, 1, ["z"], abort(3, epoch=2))
    assert scenario.problems() == []


@pytest.mark.parametrize("marker", [[], [abort(1)]])
def test_missing_marker_of_a_committed_transaction_is_detected(marker: list[Marker]) -> None:
    scenario = MarkerScenario()
    scenario.txn("a", OK, (T0, "x"), (T1, "y"))
    scenario.log(T0, 0, ["x"], commit(1))
    scenario.log(T1, 0, ["y"], *marker)
    first, second = scenario.problems()
    assert "a was committed, but" in first
    assert "has ended differently" in second


def test_commit_marker_of_a_failed_transaction_is_detected() -> None:
    scenario = MarkerScenario()
    scenario.txn("a", FAIL, (T0, "x"))
    scenario.log(T0, 0, ["x"], commit(1))
    [problem] = scenario.problems()
    assert "a failed, but a commit marker follows its record at 0" in problem


@pytest.mark.parametrize("marker", [commit(1), abort(1)])
def test_transaction_with_unknown_outcome_has_one_outcome_in_all_partitions(marker: Marker) -> None:
    scenario = MarkerScenario()
    scenario.txn("a", INFO, (T0, "x"), (T1, "y"))
    scenario.log(T0, 0, ["x"], marker)
    scenario.log(T1, 0, ["y"], marker)
    assert scenario.problems() == []
    scenario.scanned[T1][0].markers[0] = commit(1) if marker.kind == ABORT else abort(1)
    [problem] = scenario.problems()
    assert "a has ended differently" in problem


def test_two_transactions_sharing_a_marker_are_detected() -> None:
    scenario = MarkerScenario(CLASSIC)
    scenario.txn("a", OK, (T0, "x"))
    scenario.txn("b", OK, (T0, "y"))
    scenario.log(T0, 1, ["x", "y"], commit(2))
    [problem] = scenario.problems()
    assert "no marker between the records of a at 0 and of b at 1" in problem


def test_two_epochs_sharing_a_marker_are_detected() -> None:
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"])
    scenario.log(T0, 1, ["y"], commit(2, epoch=2))
    earlier, later = scenario.scanned[T0]
    scenario.scanned[T0] = [Span(PRODUCER_ID, earlier.data + later.data, later.markers)]
    [problem] = scenario.problems()
    assert "no marker of producer 7 between its records of epoch 0" in problem


def test_marker_inside_a_transaction_is_detected() -> None:
    scenario = MarkerScenario(CLASSIC)
    scenario.txn("a", OK, (T0, "x"), (T0, "y"))
    scenario.log(T0, 1, ["x"], commit(1))
    scenario.log(T0, 1, ["y"], commit(3))
    assert scenario.problems() == ["t-0: markers part the records of a"]


@pytest.mark.parametrize("make", [commit, abort])
def test_second_marker_is_detected(make: Callable[[int], Marker]) -> None:
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"], make(1), make(2))
    [problem] = scenario.problems()
    assert f"a {make(0).kind} marker of producer 7 at 2, after the {make(0).kind} marker of the same epoch 1" in problem


def test_second_marker_of_another_epoch_ends_another_transaction() -> None:
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"], commit(1), abort(2, epoch=2))
    assert scenario.problems() == []


def test_coordinator_that_loads_a_prepared_transaction_may_repeat_its_markers() -> None:
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"], commit(1), commit(2), commit(3))
    scenario.watch._loads_before = {(T0, 1): 0, (T0, 2): 1, (T0, 3): 1}
    scenario.watch.loads[PRODUCER_ID] = 1
    [problem] = scenario.problems()
    assert "at 3, after the commit marker of the same epoch 1 at 2" in problem, "one load excuses one repetition"


def test_order_of_the_coordinator_before_may_be_delivered_after_a_load() -> None:
    """Seeds 12818, 15414 and 19012: the coordinator moved between its decision and its markers."""
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"], commit(1), commit(2))
    scenario.watch._loads_before = {(T0, 1): 1, (T0, 2): 1}
    scenario.watch._coordinator_epochs = {(T0, 1): 5, (T0, 2): 5}
    assert len(scenario.problems()) == 1
    scenario.watch._coordinator_epochs[T0, 2] = 6
    assert scenario.problems() == []
    scenario.scanned[T0][0].markers[1] = abort(2)
    assert len(scenario.problems()) == 1


def test_reload_does_not_excuse_a_different_outcome() -> None:
    scenario = MarkerScenario()
    scenario.log(T0, 0, ["x"], commit(1), abort(2))
    scenario.watch._loads_before = {(T0, 1): 0, (T0, 2): 1}
    assert len(scenario.problems()) == 1


def test_coordinator_reload_in_an_undisturbed_world_is_detected() -> None:
    scenario = MarkerScenario()
    scenario.plan.is_undisturbed = True
    assert scenario.problems() == []
    scenario.watch.loads[PRODUCER_ID] = 1
    assert scenario.problems() == ["a coordinator loaded its state again in a world without a cause for it"]


def test_v1_may_abort_a_partition_without_records() -> None:
    """Seed 21: a partition that was added and not written to gets a marker right after the previous one's."""
    scenario = MarkerScenario(CLASSIC)
    scenario.txn("a", OK, (T0, "x"))
    scenario.log(T0, 1, ["x"], commit(1), abort(2))
    assert scenario.problems() == []


def test_v1_may_abort_two_transactions_without_records_after_those_of_an_earlier_epoch() -> None:
    """Seed 11116: a driver under the old protocol twice began, wrote nothing, and aborted."""
    scenario = MarkerScenario(CLASSIC)
    scenario.log(T0, 0, ["x"], abort(1, epoch=0), abort(2, epoch=2), abort(3, epoch=2))
    assert scenario.problems() == []
    scenario.users = {PRODUCER_ID: {("p", V2)}}
    assert len(scenario.problems()) == 1


def test_v1_commits_a_partition_without_records_only_after_a_late_add() -> None:
    scenario = MarkerScenario(CLASSIC)
    scenario.log(T0, 1, ["x"], commit(1), commit(2))
    assert len(scenario.problems()) == 1
    scenario.network.late.add(("other", _ADD))
    assert len(scenario.problems()) == 1
    scenario.network.late.add(("p", _ADD))
    assert scenario.problems() == []


@pytest.mark.parametrize(
    ("kind", "markers", "words"),
    [
        (OK, [commit(1)], ""),
        (OK, [abort(1)], "0 commit markers follow its offset 5"),
        (OK, [], "0 commit markers follow its offset 5"),
        (FAIL, [abort(1)], ""),
        (FAIL, [], ""),
        (FAIL, [commit(1)], "failed, but a commit marker follows its offset 5"),
    ],
)
def test_group_offsets_have_the_outcome_of_their_transaction(kind: str, markers: list[Marker], words: str) -> None:
    scenario = MarkerScenario()
    scenario.txn("a", kind, (T0, "x"), offset=5)
    scenario.log(T0, 0, ["x"], commit(1) if kind == OK else abort(1))
    scenario.offsets(0, 5, *markers)
    assert len(scenario.problems()) == bool(words)
    assert words in "".join(scenario.problems())


_STORY = "Micro-batch 3 was decided, but 1 of 2: task 0: lost, sim.query.r.w.0 producer 4 epoch 2: t-0@1..1 (1 records)"


@pytest.mark.parametrize(
    ("story", "timed_out", "words"),
    [
        (None, set(), ""),
        (_STORY, {(4, 2)}, ""),
        (_STORY, {(4, 1)}, "which has not timed out"),
        ("was decided, but all is well", {(4, 2)}, "names none"),
    ],
)
def test_query_may_stop_only_for_timed_out_transactions(
    story: str | None, timed_out: set[tuple[int, int]], words: str
) -> None:
    world: Any = SimpleNamespace(
        plan=SimpleNamespace(has_query=True),
        watch=SimpleNamespace(timed_out=timed_out),
        actors={"sink": SimpleNamespace(checkpoint=SimpleNamespace(lost=story))},
    )
    problems = list(check_lost(world))
    assert len(problems) == bool(words)
    assert words in "".join(problems)
