"""The assembly of the sink's parts in one process: its client, its pools and the state of its runs.

A process either runs tasks or commits, so what only one of the two needs is imported where it is used.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import FALLBACK_TIMEOUT_MS, SinkOptions
from spark_eos.runtime import ProcessState, Runtime, shared_state
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.commit_report import CommitReport
from spark_eos.sink.process_cache import IDLE_SECONDS, ProcessCache, client_of
from spark_eos.worker_memory import loading_modules

if TYPE_CHECKING:
    from spark_eos.sink.driver.committer import Committer, IdUsage
    from spark_eos.sink.messages import Place
    from spark_eos.sink.protocol.decision_log import DecisionLog
    from spark_eos.sink.protocol.retirement import Retirement
    from spark_eos.sink.protocol.state import RunMemory
    from spark_eos.sink.task.identity_pool import IdentityPool
    from spark_eos.sink.task.writer import TaskWriter

_SHORTEST_DRIVER_TIMEOUT_MS: Final = 5_000
# One function may mirror rows to a second cluster under the same name.
_RunKey: TypeAlias = tuple[ClientOptions, str, str, str, str]


class _Kept:
    def __init__(self, runtime: Runtime) -> None:
        # Kept longer than what is made with them, just as clients are kept longer than clusters.
        self.clusters: ProcessCache[tuple[ClientOptions, str], KafkaCluster] = ProcessCache(
            runtime.clock, 2 * IDLE_SECONDS
        )
        self.runs: ProcessCache[_RunKey, tuple[RunMemory, IdUsage]] = ProcessCache(runtime.clock)
        self.logs: ProcessCache[_RunKey, DecisionLog] = ProcessCache(runtime.clock)
        self.pools: ProcessCache[tuple[object, ...], IdentityPool] = ProcessCache(runtime.clock)


def task_writer(
    process: ProcessState,
    options: SinkOptions,
    place: "Place",
    *,
    may_be_decided: bool,
    incarnation: str | None = None,
    committed: CommitReport | None = None,
) -> "TaskWriter":
    with loading_modules(process):
        from pyspark.taskcontext import TaskContext

        from spark_eos.sink.messages import SPECULATION, is_true
        from spark_eos.sink.task.identity_pool import TaskSet
        from spark_eos.sink.task.transaction import TaskTransaction
        from spark_eos.sink.task.writer import TaskWriter

    cluster = cluster_of(process, options)
    pool = pool_of(process, cluster, options.prefix, place.query, place.run, incarnation)
    if committed is not None:
        pool.note_committed(committed)
    # The tasks that are committed together. Under speculation two attempts of one may run at a time.
    context, task_set = TaskContext.get(), None
    if context is not None and not is_true(context, SPECULATION):
        task_set = TaskSet(context.stageId(), context.attemptNumber(), options.timeout_limit_ms)
    return TaskWriter(
        options=options,
        place=place,
        cluster=cluster,
        pool=pool,
        transaction=TaskTransaction(cluster.client, options),
        log=_log(process, options, place.query, place.run) if may_be_decided else None,
        task_set=task_set,
    )


def pool_of(
    process: ProcessState, cluster: KafkaCluster, prefix: str, query: str, run: str, incarnation: str | None = None
) -> "IdentityPool":
    """Return a process's pool for a run of a query.

    The token belongs to the pool, not to the process: a pool that is created again must not use ids of the previous
    one, whose transactions may still wait for their decision. Nor do two batch jobs share ids: the abort of one would
    abort what the other is about to commit.
    """
    from spark_eos.sink.task.identity_pool import IdentityPool

    def make() -> IdentityPool:
        worker = process.runtime.random.token_hex(6)
        return IdentityPool(cluster, prefix, query, run, worker if incarnation is None else f"{incarnation}-{worker}")

    return process.part(_Kept).pools.get((prefix, query, run, incarnation, id(cluster)), make)


def committer(
    process: ProcessState,
    options: SinkOptions,
    query: str,
    run: str,
    *,
    retirement: "Retirement | None" = None,
    write: str = "",
) -> "Committer":
    with loading_modules(process):
        from spark_eos.sink.driver.committer import Committer, ComparedNames, IdUsage
        from spark_eos.sink.protocol.retirement import Retirement
        from spark_eos.sink.protocol.state import QueryRun, RunMemory

    memory, id_usage = process.part(_Kept).runs.get(_key(options, query, run), lambda: (RunMemory(), IdUsage()))
    own = QueryRun(
        log=_log(process, options, query, run),
        prefix=options.prefix,
        query=query,
        run=run,
        policy=options.on_lost_transaction,
        memory=memory,
        retirement=retirement or Retirement.REPLACE,
        write=write,
        discard_differing_rows=options.discard_differing_rows,
        may_hang=options.allow_hanging_transactions,
    )
    # Threads that run one query each may have a process state of their own.
    return Committer(cluster_of(process, options), own, id_usage, shared_state().part(ComparedNames))


def cluster_of(process: ProcessState, options: SinkOptions) -> KafkaCluster:
    """Return a process's cluster for these options: one client for all that have the same connection settings."""
    # Even if there is a cluster: a client that is used is not idle.
    client = client_of(process, options.client)
    client.use_cluster(options.cluster_id)
    return process.part(_Kept).clusters.get(
        (options.client, options.decision_topic), lambda: KafkaCluster(client, options.decision_topic)
    )


def _log(process: ProcessState, options: SinkOptions, query: str, run: str) -> "DecisionLog":
    from spark_eos.sink.protocol.decision_log import DecisionLog

    return process.part(_Kept).logs.get(
        _key(options, query, run),
        lambda: DecisionLog(options.prefix, query, options.decision_topic, driver_timeout_ms(options), run=run),
    )


def _key(options: SinkOptions, query: str, run: str) -> _RunKey:
    return options.client, options.decision_topic, options.prefix, query, run


def driver_timeout_ms(options: SinkOptions) -> int:
    """Return the timeout of the driver's own transaction.

    It is within the margin that is left when a micro-batch is decided: the coordinator aborts a decision that hangs
    before the transactions it names time out. It is not shorter than a slow write takes, even if timeouts are short.
    """
    from spark_eos.sink.protocol.decision_log import DRIVER_TIMEOUT_MS
    from spark_eos.sink.protocol.verification import margin_ms

    timeout_ms = options.transaction_timeout_ms or FALLBACK_TIMEOUT_MS
    return min(timeout_ms, max(_SHORTEST_DRIVER_TIMEOUT_MS, min(DRIVER_TIMEOUT_MS, margin_ms(timeout_ms) // 2)))
