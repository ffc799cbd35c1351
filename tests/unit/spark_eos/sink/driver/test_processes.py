"""The commits of one run may move between Python processes, as Spark assigns them."""

import itertools
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.types import TopicPartition, TransactionState
from spark_eos.errors import EosKafkaError, FencedError, OptionError
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Empty, Place, Prepared, TaskMessage
from spark_eos.sink.protocol import commit as committer_module
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.interceptors import before, fail
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import (
    cluster,
    committer_of,
    decide_and_die,
    prepare,
    repeated,
    states,
    task_id,
    visible,
)

__all__ = ["cluster"]
S = TransactionState
DRIVER = "init p.q.driver"


def empty(micro_batch: int, run: str = "run1") -> list[TaskMessage]:
    return [Empty(Place("q", run, micro_batch, split)) for split in (0, 1)]


def decided_by(committer: Committer) -> tuple[str, int]:
    newest = log_of(committer).newest()
    return newest.run, newest.micro_batch


@pytest.mark.parametrize("who", list(itertools.product((0, 1), repeat=4)))
@pytest.mark.parametrize("version", [1, 2])
def test_any_process_may_commit_any_sequence_of_empty_and_full_batches(version: int, who: tuple[int, ...]) -> None:
    for rows in itertools.product((False, True), repeat=3):
        cluster = MemoryCluster(version=version)
        committers = committer_of(cluster), committer_of(cluster)
        for micro_batch, (number, has_rows) in enumerate(zip(who, (*rows, True), strict=True)):
            messages = prepare(cluster, micro_batch) if has_rows else empty(micro_batch)
            committers[number].commit(messages, micro_batch)
        assert decided_by(committers[0]) == ("run1", 3), rows
        assert states(cluster) == {S.COMPLETE_COMMIT}, rows


def test_batch_completed_by_another_process_is_not_checked_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer_of(cluster).commit(prepare(cluster, 0), 0)
    monkeypatch.setattr(committer_module, "settle", None)
    committer_of(cluster).commit(prepare(cluster, 1), 1)
    assert states(cluster) == {S.COMPLETE_COMMIT}


def test_run_that_has_decided_does_not_take_over_for_an_empty_batch(cluster: MemoryCluster) -> None:
    first, second = committer_of(cluster), committer_of(cluster)
    first.commit(prepare(cluster, 0), 0)
    before = cluster.calls.count(DRIVER)
    second.commit(empty(1), 1)
    first.commit(empty(2), 2)
    assert cluster.calls.count(DRIVER) == before + (1 if cluster.version == 1 else 0)


def test_run_that_starts_with_an_empty_batch_fences_earlier_runs(cluster: MemoryCluster) -> None:
    old = committer_of(cluster, "run0")
    old.commit(prepare(cluster, 0, "run0"), 0)
    committer_of(cluster).commit(empty(1), 1)
    with pytest.raises(FencedError, match="newer driver"):
        old.commit(prepare(cluster, 1, "run0"), 1)
    assert decided_by(old) == ("run0", 0)


def test_process_of_an_older_run_does_not_resume_after_its_sibling(cluster: MemoryCluster) -> None:
    """A sibling's decision does not allow a takeover from a newer run that has decided since."""
    first, second = committer_of(cluster, "run0"), committer_of(cluster, "run0")
    first.commit(prepare(cluster, 0, "run0"), 0)
    second.commit(prepare(cluster, 1, "run0"), 1)
    committer_of(cluster).commit(prepare(cluster, 2), 2)
    before = cluster.calls.count(DRIVER)
    for paused in (first, second):
        with pytest.raises(FencedError):
            paused.commit(prepare(cluster, 3, "run0"), 3)
    assert cluster.calls.count(DRIVER) == before
    assert decided_by(first) == ("run1", 2)


def test_rerun_finished_by_one_process_is_continued_by_another(cluster: MemoryCluster) -> None:
    decide_and_die(cluster, run="run0")
    first, second = committer_of(cluster), committer_of(cluster)
    first.commit(repeated("run1"), 0)
    second.commit(empty(1), 1)
    first.commit(prepare(cluster, 2), 2)
    assert decided_by(first) == ("run1", 2)
    assert states(cluster) == {S.COMPLETE_COMMIT}


# Facts that only the whole topic contains, once the group's pointer has expired.


def test_pointer_expiring_between_two_processes_is_tolerated(cluster: MemoryCluster) -> None:
    first, second = committer_of(cluster), committer_of(cluster)
    for micro_batch, committer in enumerate((first, second, first, second, second, first)):
        committer.commit(prepare(cluster, micro_batch), micro_batch)
        cluster.groups.clear()
    assert states(cluster) == {S.COMPLETE_COMMIT}


def test_process_that_found_no_decision_checks_again(cluster: MemoryCluster) -> None:
    first, second = committer_of(cluster), committer_of(cluster)
    second.commit(empty(0), 0)
    first.commit(prepare(cluster, 1), 1)
    cluster.groups.clear()
    second.commit(empty(2), 2)
    first.commit(prepare(cluster, 3), 3)
    assert decided_by(first) == ("run1", 3)


def test_paused_process_that_found_no_decision_writes_nothing_twice(cluster: MemoryCluster) -> None:
    paused = committer_of(cluster, "run0")
    paused.commit(empty(0, "run0"), 0)
    late = prepare(cluster, 1, "run0")
    for micro_batch in (1, 2):
        committer_of(cluster).commit(prepare(cluster, micro_batch), micro_batch)
    cluster.groups.clear()
    with pytest.raises(EosKafkaError):
        paused.commit(late, 1)
    assert visible(cluster) == 4


def test_decision_made_during_a_takeover_is_seen(cluster: MemoryCluster) -> None:
    paused, late, messages = committer_of(cluster, "run0"), prepare(cluster, 1, "run0"), prepare(cluster, 1)

    def decide_unseen() -> None:
        committer_of(cluster).commit(messages, 1)
        cluster.groups.clear()

    before(cluster, "init_producer_id", decide_unseen)
    paused.commit(late, 1)
    assert decided_by(paused) == ("run1", 1)
    assert visible(cluster) == 2


# Siblings and newer drivers


def test_run_without_a_decision_yields_to_one_that_has_decided(cluster: MemoryCluster) -> None:
    paused, newer = committer_of(cluster, "run0"), committer_of(cluster)
    paused.commit(empty(0, "run0"), 0)
    late = prepare(cluster, 1, "run0")
    newer.commit(prepare(cluster, 1), 1)
    with pytest.raises(FencedError, match="run run1 has decided micro-batch 1"):
        paused.commit(late, 1)
    newer.commit(prepare(cluster, 2), 2)
    assert decided_by(newer) == ("run1", 2)


def test_run_no_longer_listed_as_superseded_still_yields(cluster: MemoryCluster) -> None:
    """A decision lists only the last sixteen runs."""
    paused = committer_of(cluster, "run0")
    paused.commit(prepare(cluster, 0, "run0"), 0)
    for number in range(1, 20):
        newest = committer_of(cluster, f"later{number}")
        newest.commit(prepare(cluster, number, f"later{number}"), number)
    before = cluster.calls.count(DRIVER)
    with pytest.raises(FencedError, match="later19 has decided"):
        paused.commit(prepare(cluster, 20, "run0"), 20)
    assert cluster.calls.count(DRIVER) == before
    newest.commit(prepare(cluster, 20, "later19"), 20)


def test_swept_runs_are_recorded_in_the_next_decision_of_the_process(cluster: MemoryCluster) -> None:
    cluster.prepare(task_id("run0"), 5)
    cluster.pass_time(1_000)
    first, second = committer_of(cluster), committer_of(cluster)
    for micro_batch, committer in enumerate((first, second, first)):
        committer.commit(prepare(cluster, micro_batch), micro_batch)
    assert log_of(first).newest().superseded == ("run0",)


def test_rerun_that_records_superseded_runs_is_not_taken_for_another_driver(cluster: MemoryCluster) -> None:
    decide_and_die(cluster, run="run0")
    cluster.prepare(task_id("run0", "late"), 7)
    committer = committer_of(cluster)
    committer.commit(repeated("run1"), 0)
    assert log_of(committer).newest().revision == 1
    for micro_batch in (1, 2):
        committer.commit(empty(micro_batch), micro_batch)
    committer.commit(prepare(cluster, 3), 3)
    assert decided_by(committer) == ("run1", 3)


@given(st.lists(st.tuples(st.sampled_from(["old", "new"]), st.integers(0, 2), st.booleans()), max_size=12))
def test_two_runs_with_many_processes_commit_each_micro_batch_once(steps: list[tuple[str, int, bool]]) -> None:
    """Two drivers share a checkpoint, each with three processes; an error stops a run, as it stops a query."""
    made = MemoryCluster(version=2)
    committers = {(run, number): committer_of(made, run) for run in ("old", "new") for number in range(3)}
    place, running = {"old": 0, "new": 0}, {"old", "new"}
    written: dict[tuple[int, int], list[int]] = {}
    for run, number, has_rows in steps:
        if run not in running:
            continue
        micro_batch, committer = place[run], committers[run, number]
        messages = prepare(made, micro_batch, run) if has_rows else empty(micro_batch, run)
        for each in messages:
            if isinstance(each, Prepared):
                [written_range] = each.transaction.ranges
                written.setdefault((micro_batch, each.place.split), []).append(written_range.first_offset)
        try:
            committer.commit(messages, micro_batch)
            place[run] += 1
        except EosKafkaError:
            running.remove(run)
            committer.abort(messages, micro_batch)
    for (micro_batch, split), offsets in written.items():
        seen = [made.outcomes.get((TopicPartition("t", split), offset), False) for offset in offsets]
        assert sum(seen) <= 1, (micro_batch, split)
    if len({run for run, _, _ in steps}) == 1:
        assert running == {"old", "new"}, "the processes of a single run do not stop each other"
        assert all(made.outcomes.values())


def test_sibling_seen_once_is_not_forgotten_for_an_outdated_answer() -> None:
    """The explorer found it: the second look, at another broker, met a coordinator that is cut off from the others.

    Under the old protocol that look is the only one, so that one outdated answer stops the process.
    """
    cluster = MemoryCluster(version=2)
    first, second = committer_of(cluster), committer_of(cluster)
    first.commit(prepare(cluster, 0), 0)
    past = dict(cluster.groups["p.q"])
    messages = prepare(cluster, 1)
    second.commit(messages, 1)
    forget = cluster.forget_coordinators

    def then_outdated(transactional_ids: Collection[str], group_id: str | None = None) -> None:
        forget(transactional_ids, group_id)
        if group_id is not None:
            cluster.forget_coordinators = forget  # type: ignore[method-assign]
            cluster.past_offsets[group_id] = past

    cluster.forget_coordinators = then_outdated  # type: ignore[method-assign]
    first.commit(prepare(cluster, 2), 2)
    assert decided_by(second) == ("run1", 2)


def test_second_write_after_an_interrupted_commit_is_refused(cluster: MemoryCluster) -> None:
    """The interrupt comes when the micro-batch is decided and completed, and before the call has ended."""
    first = committer_of(cluster)
    first.own.write = "one"
    fail(cluster, "open_transactions", KeyboardInterrupt(), times=1)
    with pytest.raises(KeyboardInterrupt):
        first.commit(prepare(cluster, 0), 0)
    second = replace(first, own=replace(first.own, write="two"))
    with pytest.raises(OptionError, match="already written under the name"):
        second.commit(prepare(cluster, 0, splits=(2, 3)), 0)
    assert cluster.calls.count("decide") == 1
