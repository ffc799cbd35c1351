"""Put the sink's parts together for one process: one client, its pools and what a run's driver remembers."""

import os
from typing import Final, TypeAlias

from pyspark.taskcontext import TaskContext

from spark_eos.client.connection import KafkaClient
from spark_eos.client_options import ClientOptions
from spark_eos.sink.closing import Closing
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.committer import Committer
from spark_eos.sink.deadlines import margin_ms
from spark_eos.sink.decision_log import DRIVER_TIMEOUT_MS, DecisionLog
from spark_eos.sink.decision_writer import DecisionWriter
from spark_eos.sink.driver import RunState
from spark_eos.sink.pool import TaskSet, pool_of
from spark_eos.sink.task import Place, TaskWriter
from spark_eos.sink.transactions import TaskTransaction
from spark_eos.sink_options import FALLBACK_TIMEOUT_MS, SinkOptions

_MAX_KEPT: Final = 64
_SHORTEST_DRIVER_TIMEOUT_MS: Final = 5_000
_clusters: dict[tuple[int, SinkOptions], KafkaCluster] = {}
# Rows may be mirrored to a second cluster in one function, under the same name.
_RunKey: TypeAlias = tuple[int, ClientOptions, str, str, str, str]
_runs: dict[_RunKey, RunState] = {}
_logs: dict[_RunKey, DecisionLog] = {}


def task_writer(
    options: SinkOptions, place: Place, *, may_be_decided: bool, launch: str | None = None
) -> TaskWriter:
    """Make the writer of one task; identities and connections outlive it in the worker process."""
    cluster = cluster_of(options)
    return TaskWriter(
        options=options,
        place=place,
        cluster=cluster,
        pool=pool_of(cluster, options.prefix, place.query, place.run, launch),
        transaction=TaskTransaction(cluster.client, options),
        log=_log(cluster, options, place.query, place.run) if may_be_decided else None,
        task_set=_task_set(options),
    )


def _task_set(options: SinkOptions) -> TaskSet | None:
    """Name the tasks that are committed together; None under speculation, where one may be written twice at a time."""
    context = TaskContext.get()
    # Spark gives its tasks the settings of the session as local properties.
    if context is None or context.getLocalProperty("spark.speculation") == "true":
        return None
    return TaskSet(context.stageId(), context.attemptNumber(), options.timeout_limit_ms)


def committer(
    options: SinkOptions,
    query: str,
    run: str,
    *,
    may_be_decided: bool,
    closing: Closing = Closing.REPLACE,
    write: str = "",
) -> Committer:
    """Make the committer of a micro-batch; what its run has learned outlives it in the driver's process."""
    cluster = cluster_of(options)
    return Committer(
        cluster=cluster,
        log=_log(cluster, options, query, run),
        prefix=options.prefix,
        query=query,
        run=run,
        policy=options.on_lost_transaction,
        may_be_decided=may_be_decided,
        state=_run_state(_key(options, query, run)),
        closing=closing,
        write=write,
        discard_differing_rows=options.discard_differing_rows,
        may_hang=options.allow_hanging_transactions,
    )


def cluster_of(options: SinkOptions) -> KafkaCluster:
    """Give this process's cluster for these options."""
    key = (os.getpid(), options)
    if key not in _clusters:
        # A forked worker leaves its parent's connections alone; the client room sees to that.
        while len(_clusters) >= _MAX_KEPT:
            _clusters.pop(next(iter(_clusters))).client.close()
        _clusters[key] = KafkaCluster(KafkaClient(options.client), options.decision_topic, DecisionWriter)
    return _clusters[key]


def _log(cluster: KafkaCluster, options: SinkOptions, query: str, run: str) -> DecisionLog:
    key = _key(options, query, run)
    if key not in _logs:
        while len(_logs) >= _MAX_KEPT:
            _logs.pop(next(iter(_logs)))
        _logs[key] = DecisionLog(cluster, options.prefix, query, options.decision_topic, driver_timeout_ms(options))
    return _logs[key]


def _key(options: SinkOptions, query: str, run: str) -> _RunKey:
    return os.getpid(), options.client, options.decision_topic, options.prefix, query, run


def driver_timeout_ms(options: SinkOptions) -> int:
    """Choose the timeout of the driver's own transaction.

    Within the margin that is left when a micro-batch is decided: a decision that hangs is then aborted by its
    coordinator before the transactions it names are. Not below what a slow write takes, where timeouts are short.
    """
    timeout_ms = options.transaction_timeout_ms or FALLBACK_TIMEOUT_MS
    return min(timeout_ms, max(_SHORTEST_DRIVER_TIMEOUT_MS, min(DRIVER_TIMEOUT_MS, margin_ms(timeout_ms) // 2)))


def _run_state(key: _RunKey) -> RunState:
    if key not in _runs:
        while len(_runs) >= _MAX_KEPT:
            _runs.pop(next(iter(_runs)))
        _runs[key] = RunState()
    return _runs[key]
