"""Which ids a worker takes for its tasks, and what the driver reports of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from broker_core.types import TransactionState
from spark_eos.errors import EosKafkaError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.commit_report import CommitReport, WorkerIds, last_report, leave_report, report_of
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Empty, Place, Prepared, TaskMessage
from spark_eos.sink.process_cache import ProcessCache
from spark_eos.sink.spark_writers import _commit
from spark_eos.sink.task.identity_pool import IdentityPool
from tests.support.clocks import StandingClock
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.spark_eos.sink_commits import cluster, committer_of, decide_and_die, local_folder, prepare

S = TransactionState
__all__ = ["cluster", "local_folder"]
QUERY, RUN, PREFIX = "q", "run1", "p"


class Worker:
    """A worker process, whose driver commits every transaction and may report that to the tasks."""

    def __init__(self, memory: MemoryCluster) -> None:
        self.cluster = memory
        self.pool = IdentityPool(memory, PREFIX, QUERY, RUN, "w")

    def run_tasks(self, micro_batch: int, count: int) -> list[str]:
        """Run tasks up to prepare; return the requests, without InitProducerId of new ids."""
        self.taken = []
        before = len(self.cluster.calls)
        for _ in range(count):
            taken = self.pool.take(60_000, micro_batch)
            assert self.cluster.ids[taken.transactional_id].identity == taken.producer
            self.cluster.prepare(taken.transactional_id)
            self.taken.append(taken)
        return self.cluster.calls[before:]

    def commit(self, micro_batch: int, *, is_reported: bool, lost: int = 0) -> None:
        """Commit all transactions but the first `lost` ones, which are aborted."""
        version = self.cluster.version
        for number, (name, identity, _) in enumerate(self.taken):
            self.cluster.end_transactions([OpenTransaction(name, identity, version)], number >= lost)
        if is_reported:
            numbers = sum(1 << int(name.rpartition(".")[2]) for name, *_ in self.taken[lost:])
            others = WorkerIds(micro_batch, 1 << 70)
            self.pool.note_committed(CommitReport(RUN, {"w": WorkerIds(micro_batch, numbers), "another": others}))


@pytest.mark.parametrize("count", [2, 200])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_reported", [False, True])
def test_worker_describes_ids_at_most_once_per_micro_batch_and_needs_one_per_task(
    count: int, version: int, is_reported: bool
) -> None:
    worker = Worker(MemoryCluster(version=version))
    for micro_batch in range(4):
        calls = worker.run_tasks(micro_batch, count)
        asked = [call for call in calls if call.startswith("describe")]
        assert asked == ([] if is_reported or not micro_batch else [f"describe {count}"])
        initialised = [call for call in calls if call.startswith("init")]
        # Ids that are initialized beside the needed ones are used next.
        spare = len(worker.pool._spares)
        expected = count if version == 1 or not micro_batch else 0
        assert len(initialised) == expected + (0 if micro_batch else spare)
        assert spare <= min(count // 3, 15)
        worker.commit(micro_batch, is_reported=is_reported)
    assert len(worker.pool) == count


def test_worker_initializes_more_ids_at_a_time_as_it_needs_more() -> None:
    memory = MemoryCluster()
    worker, counts = Worker(memory), []
    own = memory.own_some_of

    def counted(names: Iterator[str], count: int, timeout_ms: int) -> Sequence[OpenTransaction]:
        counts.append(count)
        return own(names, count, timeout_ms)

    memory.own_some_of = counted  # type: ignore[method-assign]
    worker.run_tasks(0, 100)
    assert counts == [1, 1, 1, 1, 2, 3, 4, 6, 9, 14, 16, 16, 16, 16]
    assert len({taken.transactional_id for taken in worker.taken}) == 100


@pytest.mark.parametrize(
    ("timeout_ms", "version", "pause_ms", "is_usable"),
    [(60_000, 2, 0, True), (30_000, 2, 0, False), (60_000, 1, 0, False), (60_000, 2, 400_000, False)],
    ids=["unchanged", "another timeout", "another protocol", "after minutes"],
)
def test_spare_id_is_used_unchanged_or_not_at_all(
    timeout_ms: int, version: int, pause_ms: int, is_usable: bool
) -> None:
    memory = MemoryCluster()
    worker = Worker(memory)
    worker.run_tasks(0, 5)
    assert max(memory.ids) == f"{PREFIX}.{QUERY}.{RUN}.w.5", "one of the ids is left"
    memory.pass_time(pause_ms)
    memory.version = version
    expected = f"{PREFIX}.{QUERY}.{RUN}.w.{5 if is_usable else 6}"
    assert worker.pool.take(timeout_ms, 0).transactional_id == expected


def test_only_ids_named_in_the_report_count_as_committed() -> None:
    worker = Worker(MemoryCluster())
    worker.run_tasks(0, 3)
    worker.commit(0, is_reported=True, lost=1)
    assert worker.run_tasks(1, 3) == ["describe 1", "init p.q.run1.w.0"]


@pytest.mark.parametrize(
    "report",
    [
        CommitReport("run0", {"w": WorkerIds(0, 3)}),
        CommitReport(RUN, {"v": WorkerIds(0, 3)}),
        CommitReport(RUN, {"w": WorkerIds(1, 3)}),
        CommitReport(RUN, {}),
    ],
    ids=["of another run", "of another worker", "of another micro-batch", "of none"],
)
def test_unrelated_report_is_ignored(report: CommitReport) -> None:
    worker = Worker(MemoryCluster())
    worker.run_tasks(0, 2)
    worker.pool.note_committed(report)
    worker.commit(0, is_reported=False)
    assert worker.run_tasks(1, 2) == ["describe 2"]


def test_late_report_is_ignored_for_ids_used_since() -> None:
    worker = Worker(MemoryCluster())
    worker.run_tasks(0, 2)
    worker.commit(0, is_reported=False)
    worker.run_tasks(1, 1)
    worker.pool.note_committed(CommitReport(RUN, {"w": WorkerIds(0, 3)}))
    [open_id] = [name for name, each in worker.cluster.ids.items() if each.state is S.ONGOING]
    assert worker.run_tasks(2, 2) == ["describe 1", f"init {PREFIX}.{QUERY}.{RUN}.w.2"]
    assert worker.cluster.ids[open_id].state is S.ONGOING


def test_transaction_open_after_its_micro_batch_is_skipped_and_described_once_in_the_next() -> None:
    """A foreachBatch function may continue after a commit that failed behind its decision."""
    worker = Worker(MemoryCluster())
    worker.run_tasks(0, 2)
    assert worker.run_tasks(1, 2) == ["describe 2", "init p.q.run1.w.2", "init p.q.run1.w.3"]
    assert {each.state for each in worker.cluster.ids.values()} == {S.ONGOING}


def test_id_unused_for_minutes_is_described_before_use() -> None:
    """A coordinator forgets ids, and would then refuse the epoch that follows the last one."""
    worker = Worker(MemoryCluster())
    worker.run_tasks(0, 2)
    worker.commit(0, is_reported=True)
    assert worker.run_tasks(1, 1) == []
    worker.commit(1, is_reported=True)
    worker.cluster.pass_time(3_600_000)
    worker.cluster.forgotten.add(worker.taken[0].transactional_id)
    assert worker.run_tasks(2, 1) == ["describe 2"]


def test_task_of_an_older_micro_batch_takes_no_current_id() -> None:
    worker = Worker(MemoryCluster())
    worker.run_tasks(1, 1)
    worker.commit(1, is_reported=True)
    assert worker.run_tasks(0, 1) == ["init p.q.run1.w.1"]


def commit(made: Committer, messages: list[TaskMessage], micro_batch: int) -> None:
    _commit(made, messages, micro_batch, "/checkpoint")


def test_driver_reports_committed_ids(cluster: MemoryCluster, local_folder: Path) -> None:
    made = committer_of(cluster)
    assert last_report("/checkpoint") is None
    commit(made, prepare(cluster, 0), 0)
    assert last_report("/checkpoint") == CommitReport("run1", {"w0": WorkerIds(0, 1), "w1": WorkerIds(0, 1)})
    commit(made, [Empty(Place("q", "run1", 1, 0))], 1)
    assert last_report("/checkpoint") == CommitReport("run1", {"w0": WorkerIds(0, 1), "w1": WorkerIds(0, 1)})
    assert last_report("/other") is None and last_report(None) is None
    [file] = local_folder.iterdir()
    file.write_text("[1")
    assert last_report("/checkpoint") is None


def test_worker_without_tasks_for_some_micro_batches_is_still_reported(local_folder: Path) -> None:
    memory, report, workers = MemoryCluster(), None, []
    for micro_batch in range(30):
        names = [f"p.q.{RUN}.{worker}.0" for worker in ("busy", "rare")[: 1 if micro_batch % 25 else 2]]
        report = report_of(RUN, micro_batch, [memory.prepare(name) for name in names], report)
        workers.append(sorted((worker, each.micro_batch) for worker, each in report.workers.items()))
    assert workers[19] == [("busy", 19), ("rare", 0)] and workers[20] == [("busy", 20)]
    assert workers[29] == [("busy", 29), ("rare", 25)]
    assert report_of("run2", 30, [], report).workers == {}


def test_driver_does_not_report_aborted_transactions(cluster: MemoryCluster, local_folder: Path) -> None:
    decide_and_die(cluster, run="run0")
    # Tasks that did not see the decision write once more.
    commit(committer_of(cluster), prepare(cluster, 0), 0)
    assert last_report("/checkpoint") is None


def test_driver_does_not_report_transactions_committed_earlier(cluster: MemoryCluster, local_folder: Path) -> None:
    """Tasks that did not see the decision write all of their rows; what they repeat is dropped."""
    first = decide_and_die(cluster, run="run0")
    kept_one, lost = [message.transaction for message in first if isinstance(message, Prepared)]
    identity = cluster.ids[kept_one.transactional_id].identity
    cluster.end_transactions([OpenTransaction(kept_one.transactional_id, identity, cluster.version)], True)
    cluster.time_out(lost.transactional_id)
    made, again = committer_of(cluster, policy=OnLostTransaction.REWRITE), prepare(cluster, 0)
    commit(made, again, 0)
    dropped, written = [message.transaction for message in again if isinstance(message, Prepared)]
    assert made.committed == (written,)
    assert cluster.ids[dropped.transactional_id].state is S.COMPLETE_ABORT
    assert last_report("/checkpoint") == CommitReport("run1", {"w1": WorkerIds(0, 1)})


def test_driver_reports_nothing_after_a_failed_commit(
    cluster: MemoryCluster, local_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = prepare(cluster, 0)
    monkeypatch.setattr(cluster, "end_transactions", lambda *_: {})
    with pytest.raises((EosKafkaError, KeyError)):
        commit(committer_of(cluster), messages, 0)
    assert last_report("/checkpoint") is None


def test_report_of_thousands_of_tasks_is_small(local_folder: Path) -> None:
    memory = MemoryCluster()
    report = report_of(RUN, 0, [memory.prepare(f"p.q.{RUN}.w{task % 10}.{task // 10}") for task in range(5_000)])
    leave_report("/checkpoint", report)
    assert last_report("/checkpoint") == report
    [file] = local_folder.iterdir()
    assert file.stat().st_size < 3_000


def test_idle_pools_are_dropped_by_age_and_not_by_count() -> None:
    clock, dropped = StandingClock(), list[str]()
    values: ProcessCache[int, str] = ProcessCache(clock, 60, dropped.append)
    for _ in range(2):
        for key in range(500):
            assert values.get(key, lambda key=key: f"made {key} at {clock.seconds:.0f}") == f"made {key} at 0"
        clock.sleep(30)
    values.get(7, str)
    clock.sleep(30)
    assert values.get(7, str) == "made 7 at 0"
    assert len(dropped) == 499 and len(values) == 1
