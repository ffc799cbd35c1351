"""The identity that a worker process uses next."""

from types import SimpleNamespace

import pytest
from pyspark.taskcontext import TaskContext

from broker_core.types import ProducerIdentity, TransactionState
from spark_eos.errors import LostTransactionError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink import factory
from spark_eos.sink.commit_report import CommitReport, WorkerIds
from spark_eos.sink.messages import Place
from spark_eos.sink.process_cache import IDLE_SECONDS
from spark_eos.sink.protocol.answers import Description
from spark_eos.sink.task.identity_pool import IdentityPool, TaskSet
from tests.support.clocks import StandingClock, runtime_by
from tests.support.function_calls import count_calls
from tests.support.spark_eos.sink_cluster import Id, MemoryCluster

S = TransactionState
LAST = ProducerIdentity(7, 3)


def _described(state: TransactionState, producer_id: int = 7, epoch: int = 4) -> Description:
    return Description("p.q.r.w.0", state, ProducerIdentity(producer_id, epoch), 60_000, -1)


@pytest.mark.parametrize(
    ("begun", "version", "description", "goes_on"),
    [
        (2, 2, _described(S.COMPLETE_COMMIT), True),
        (2, 2, _described(S.PREPARE_COMMIT), True),
        (1, 2, _described(S.COMPLETE_COMMIT), False),
        (2, 1, _described(S.COMPLETE_COMMIT), False),
        (1, 1, _described(S.COMPLETE_COMMIT, epoch=3), False),
        (2, 2, _described(S.COMPLETE_COMMIT, epoch=3), False),
        (2, 2, _described(S.COMPLETE_COMMIT, epoch=5), False),
        (2, 2, _described(S.COMPLETE_COMMIT, producer_id=8), False),
        (2, 2, _described(S.COMPLETE_ABORT), False),
        (2, 2, _described(S.PREPARE_ABORT), False),
        (2, 2, _described(S.EMPTY), False),
        (2, 2, _described(S.DEAD), False),
        (2, 2, None, False),
    ],
)
def test_next_transaction_skips_init_only_after_a_committed_v2_transaction(
    monkeypatch: pytest.MonkeyPatch, begun: int, version: int, description: Description | None, goes_on: bool
) -> None:
    cluster = MemoryCluster(version=begun)
    cluster.ids["p.q.r.w.0"] = Id(ProducerIdentity(7, 2))
    pool = _pool(cluster)
    assert pool.take(60_000, 0).producer == LAST
    cluster.version = version
    described = {} if description is None else {description.transactional_id: description}
    monkeypatch.setattr(cluster, "describe_transactions", lambda names: described)
    taken = pool.take(60_000, 1)
    is_initialised = len([call for call in cluster.calls if call.startswith("init")]) > 1
    assert (taken.producer == ProducerIdentity(7, 4) and not is_initialised) is goes_on


@pytest.mark.parametrize("is_reported", [False, True])
def test_epoch_near_exhaustion_is_not_continued(is_reported: bool, cluster: MemoryCluster) -> None:
    cluster.ids["p.q.r.w.0"] = Id(ProducerIdentity(7, 32764))
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    assert identity == ProducerIdentity(7, 32765)
    _end(cluster, name, identity, True)
    if is_reported:
        pool.note_committed(CommitReport("r", {"w": WorkerIds(0, 1)}))
    assert _use(cluster, pool, 1)[1] == ProducerIdentity(2, 0)


def _pool(cluster: MemoryCluster) -> IdentityPool:
    return IdentityPool(cluster, "p", "q", "r", "w")


def _use(cluster: MemoryCluster, pool: IdentityPool, micro_batch: int = 0) -> tuple[str, ProducerIdentity]:
    taken = pool.take(60_000, micro_batch)
    assert cluster.ids[taken.transactional_id].identity == taken.producer
    cluster.prepare(taken.transactional_id)
    return taken.transactional_id, taken.producer


def _end(cluster: MemoryCluster, name: str, identity: ProducerIdentity, commit: bool) -> None:
    cluster.end_transactions([OpenTransaction(name, identity, cluster.version)], commit)


@pytest.mark.parametrize("what", ["swept", "timed out"])
def test_id_is_initialized_again_after_anything_but_a_commit(what: str, cluster: MemoryCluster) -> None:
    """Otherwise the description of a decided transaction could be the abort of the one before it."""
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    if what == "swept":
        _end(cluster, name, identity, False)
    else:
        cluster.time_out(name)
    aborted = cluster.ids[name].identity
    _, following = _use(cluster, pool, 1)
    assert following == ProducerIdentity(aborted.producer_id, aborted.producer_epoch + 1) and len(pool) == 1
    assert cluster.calls.count("init p.q.r.w.0") == 2


def test_id_whose_initialization_was_not_answered_is_abandoned() -> None:
    """The coordinator may initialize it late, which would abort a transaction begun meanwhile."""
    cluster = MemoryCluster(lose_answer_of={"p.q.r.w.0", "p.q.r.w.1"})
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    assert name == "p.q.r.w.2" and len(pool) == 1
    _end(cluster, name, identity, False)
    cluster.lose_answer_of.add(name)
    assert _use(cluster, pool, 1)[0] == "p.q.r.w.3" and len(pool) == 1
    assert [cluster.calls.count(f"init p.q.r.w.{number}") for number in range(4)] == [1, 1, 2, 1]


def test_exhausted_epoch_is_skipped(cluster: MemoryCluster) -> None:
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    _end(cluster, name, identity, True)
    cluster.ids[name].identity = ProducerIdentity(identity.producer_id, 32765)
    _, following = _use(cluster, pool, 1)
    assert following.producer_epoch == 0 and following.producer_id != identity.producer_id


def test_id_unknown_to_its_coordinator_is_left_alone(cluster: MemoryCluster) -> None:
    """It may have an open transaction: a coordinator that has just moved does not know the id for a moment."""
    pool = _pool(cluster)
    first, _ = _use(cluster, pool)
    cluster.forgotten.add(first)
    assert _use(cluster, pool, 1)[0] == "p.q.r.w.1"
    assert cluster.ids[first].state is S.ONGOING


def test_recreated_pool_never_reuses_ids_of_its_predecessor() -> None:
    clock = StandingClock()
    process, cluster, same_broker = ProcessState(runtime_by(clock)), MemoryCluster(), MemoryCluster()
    same_broker.ids = cluster.ids
    first, _ = _use(cluster, factory.pool_of(process, cluster, "p", "q", "r"))
    assert factory.pool_of(process, cluster, "p", "q", "r") is factory.pool_of(process, cluster, "p", "q", "r")
    second, _ = _use(same_broker, factory.pool_of(process, same_broker, "p", "q", "r"))
    clock.sleep(IDLE_SECONDS + 1)
    third, _ = _use(cluster, factory.pool_of(process, cluster, "p", "q", "r"))
    assert len({first, second, third}) == 3
    assert {cluster.ids[name].state for name in (first, second, third)} == {S.ONGOING}


def test_id_used_by_transactions_v2_is_left_alone_at_level_0(cluster: MemoryCluster) -> None:
    pool = _pool(cluster)
    name, identity = _use(cluster, pool)
    _end(cluster, name, identity, True)
    cluster.version = 0
    other, identity = _use(cluster, pool, 1)
    assert other == "p.q.r.w.1"
    _end(cluster, other, identity, True)
    assert _use(cluster, pool, 2)[0] == other
    assert cluster.calls.count(f"init {name}") == 1


TIMEOUT_MS = 60_000
STAGE = TaskSet(7, 0, 900_000)


class Job:
    """The tasks of one job in one worker process, one after the other."""

    def __init__(self, version: int = 2) -> None:
        self.cluster = MemoryCluster(version=version)
        self.pool = _pool(self.cluster)

    def run_task(self, task_set: TaskSet | None = STAGE, *, prepares: bool = True, timeout_ms: int = TIMEOUT_MS) -> str:
        name = self.pool.take(timeout_ms, 0, task_set).transactional_id
        self.cluster.prepare(name)
        if prepares and task_set is not None:
            self.pool.note_prepared(name, (), task_set)
        return name

    def time_out(self, name: str) -> None:
        self.cluster.pass_time(TIMEOUT_MS + 5_000)
        self.cluster.time_out(name)


@pytest.mark.parametrize("version", [1, 2])
def test_job_running_longer_than_its_transaction_timeout_fails_at_the_next_task(version: int) -> None:
    job = Job(version)
    first = job.run_task()
    job.cluster.pass_time(30_000)
    second = job.run_task()
    assert second != first, "an open transaction is left alone"
    job.time_out(first)
    calls = len(job.cluster.calls)
    with pytest.raises(LostTransactionError, match=rf"{first}.*which began 95000 ms ago, has timed out"):
        job.run_task()
    assert job.cluster.calls[calls:] == ["describe 1", "init p.q.r.stage-7-timed-out.0"]
    # Spark ends the process with the task and retries the task in another one.
    job.pool = IdentityPool(job.cluster, "p", "q", "r", "another")
    for attempt in (1, 2):
        with pytest.raises(LostTransactionError, match="a transaction of an earlier task has timed out"):
            job.run_task(STAGE._replace(attempt=attempt))
    # A later stage, as when a function of foreachBatch retries, is not affected.
    job.run_task(TaskSet(8, 1, 900_000))


def test_task_costs_the_same_among_many_tasks() -> None:
    def cost(tasks: int) -> int:
        """Count the calls of a task in the middle of the second micro-batch."""
        job = Job()
        for name in [job.run_task() for _ in range(tasks)]:
            _end(job.cluster, name, job.cluster.ids[name].identity, True)
        job.pool.note_committed(CommitReport("r", {"w": WorkerIds(0, 2**tasks - 1)}))

        def run_task() -> None:
            job.pool.note_prepared(job.pool.take(TIMEOUT_MS, 1, STAGE).transactional_id, (), STAGE)

        for _ in range(tasks // 2):
            run_task()
        return count_calls(run_task, builtins=True)

    assert cost(200) == cost(20)


@pytest.mark.parametrize(
    ("limit_ms", "remedy"),
    [
        (900_000, r"Raise transactionTimeout above.*brokers' limit \(transaction\.max\.timeout\.ms\) is 900000 ms"),
        (TIMEOUT_MS, "Raise transaction.max.timeout.ms on the brokers, and transactionTimeout with it, above"),
        (None, "is not known"),
    ],
)
def test_lost_transaction_error_suggests_a_timeout_within_the_broker_maximum(limit_ms: int | None, remedy: str) -> None:
    job, stage = Job(), TaskSet(7, 0, limit_ms)
    job.time_out(job.run_task(stage))
    with pytest.raises(LostTransactionError, match=remedy):
        job.run_task(stage)


def test_job_that_may_still_succeed_is_not_failed() -> None:
    # A transaction of an earlier job or micro-batch has timed out.
    job = Job()
    job.time_out(job.run_task(TaskSet(6, 0, 900_000)))
    job.run_task()
    # The task failed, and another attempt has written its rows.
    job = Job()
    job.time_out(job.run_task(prepares=False))
    job.run_task()
    # The task failed, and this is the other attempt, in the same process or another.
    job = Job()
    job.time_out(job.run_task(prepares=False))
    job.run_task(STAGE._replace(attempt=1))
    # With speculation another attempt may have been accepted, so the pool concludes nothing.
    job = Job()
    job.time_out(job.run_task())
    job.run_task(None)
    # A driver has aborted it: the job has ended for another reason than a timeout.
    job = Job()
    first = job.run_task()
    job.cluster.time_out(first)
    job.run_task()
    # The transaction is old but still open, or committed: by the coordinator's clock it has not timed out.
    for is_committed in (False, True):
        job = Job()
        first = job.run_task()
        job.cluster.pass_time(10_000 * TIMEOUT_MS)
        if is_committed:
            _end(job.cluster, first, job.cluster.ids[first].identity, True)
        job.run_task()
    # The coordinator does not know the id, or describes an earlier state.
    job = Job()
    first = job.run_task()
    known = job.cluster.ids[first]
    job.cluster.pass_time(10_000 * TIMEOUT_MS)
    job.cluster.forgotten.add(first)
    job.run_task()
    job.cluster.forgotten.clear()
    known.state = S.COMPLETE_ABORT
    job.run_task()


@pytest.mark.parametrize(("speculation", "found"), [(None, STAGE), ("False", STAGE), ("true", None), ("True ", None)])
def test_tasks_are_grouped_by_stage_unless_speculation_is_enabled(
    monkeypatch: pytest.MonkeyPatch, speculation: str | None, found: TaskSet | None
) -> None:
    properties = {"spark.speculation": speculation}
    context = SimpleNamespace(stageId=lambda: 7, attemptNumber=lambda: 0, getLocalProperty=properties.get)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    options = SinkOptions(ClientOptions(("h:1",)), transaction_timeout_ms=TIMEOUT_MS, timeout_limit_ms=900_000)
    writer = factory.task_writer(ProcessState(REAL), options, Place("q", "r", 0, 0), may_be_decided=False)
    assert writer.task_set == found
