"""Writes of a streaming query that do not see their query, or see a micro-batch that has ended.

In `foreachBatch` a task sees the query in its local properties, but not if a plain thread starts the job, nor over
Spark Connect, where the function runs in another process. As batch jobs such writes would be repeated with each attempt
of their micro-batch. But the session of a query's micro-batches has a setting that Spark makes nowhere else.

Before Spark 4.3, and later with a setting, Connect runs these writes in the client's own session. Their plan begins
with a relation that the server keeps, and the plan is in the job's call site. Only checkpointed frames begin like that
otherwise. The setting counts at the query's start, and a task sees its present value.

A thread that is kept for later micro-batches has the properties that it was started with. Spark calls the function
inside of an execution, which ends with its micro-batch; only the driver can ask whether it has ended.
"""

import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Final

import pyspark

from spark_eos.errors import ClientStateError
from spark_eos.sink.messages import LocalProperties, Place, is_true

if TYPE_CHECKING:
    from pyspark import SparkContext

# PySpark 4.2 and 4.3 have it in stateless queries, too. Other settings of that session are also made by users.
_SET_FOR_MICRO_BATCHES: Final = "spark.sql.streaming.internal.stateStore.partitions"
_CALL_SITE: Final = "callSite.long"
_FROM_CONNECT: Final = 'client_type: "_SPARK_CONNECT'
_KEPT_BY_SERVER: Final = "cached_remote_relation {"
# The program that runs the function over Connect. Since Spark 4.3 it receives the id of the micro-batch's session.
_CONNECT_PROGRAM: Final = "sql/connect/streaming/worker/foreach_batch_worker.py"
_OWN_SESSION: Final = b"cloned_session_id"
# Spark runs the function in the client's session if this is false.
_USES_OWN_SESSION: Final = "spark.sql.connect.streaming.foreachBatch.useClonedSession"
# The execution that the function is called in. The outermost one may be of the thread that has started the query.
_EXECUTION: Final = "spark.sql.execution.id"


def refuse_unseen_query(context: LocalProperties) -> None:
    """Raise if a write that sees no query belongs to one: nothing identifies its micro-batch."""
    if context.getLocalProperty(_SET_FOR_MICRO_BATCHES) is not None:
        raise ClientStateError(
            "This write belongs to a streaming query and does not see it, so it would be written again if Spark runs "
            "the micro-batch again",
            checked=f"The task's local properties: {_SET_FOR_MICRO_BATCHES} is set, and sql.streaming.queryId is not",
            remedy="Over Spark Connect set the option jobId, made of the name of the stream, the batch id and the "
            "topic. In a thread that the foreachBatch function starts, use pyspark.InheritableThread with "
            "spark_eos.write",
        )
    if _may_be_of_connect(context):
        setting = context.getLocalProperty(_USES_OWN_SESSION)
        raise ClientStateError(
            "This write may belong to a streaming query over Spark Connect, and would then be written again if Spark "
            "runs the micro-batch again",
            checked=f"The plan of Spark Connect begins with a relation of the server, on Spark {pyspark.__version__}"
            + ("" if setting is None else f" with {_USES_OWN_SESSION}={setting}"),
            remedy="Set the option jobId: in foreachBatch made of the name of the stream, the batch id and the topic; "
            "for a checkpointed DataFrame any name of this job",
        )


def refuse_ended_micro_batch(context: "SparkContext", place: Place) -> None:
    """Raise if a thread of an earlier micro-batch makes a write: it would be named after that one."""
    if _has_ended(context):
        query, _, name = place.query.partition("/")
        raise ClientStateError(
            f"The thread that makes the write {name!r} of query {query} was started in micro-batch "
            f"{place.micro_batch}, which has ended",
            checked=f"The thread's local property {_EXECUTION}, and Spark: the execution with this number has ended",
            remedy="Start a new pyspark.InheritableThread for the write in each micro-batch: a thread that is kept "
            "still belongs to the micro-batch that it was started in",
        )


def _has_ended(context: "SparkContext") -> bool:
    execution = context.getLocalProperty(_EXECUTION)
    if execution is None:
        return False
    try:
        executions = context._jvm.org.apache.spark.sql.execution.SQLExecution  # type: ignore[union-attr]
        return executions.getQueryExecution(int(execution)) is None
    except Exception:
        # A platform that filters calls of Spark may refuse this one.
        return False


def _may_be_of_connect(context: LocalProperties) -> bool:
    call_site = context.getLocalProperty(_CALL_SITE) or ""
    if _FROM_CONNECT not in call_site or _KEPT_BY_SERVER not in call_site:
        return False
    return not (is_true(context, _USES_OWN_SESSION, "true") and _has_own_sessions())


@cache
def _has_own_sessions() -> bool:
    """Return whether Connect runs the function in the micro-batch's session; without its program, assume not."""
    try:
        # Read and not imported: it needs packages that executors lack.
        program = pkgutil.get_data("pyspark", _CONNECT_PROGRAM)
    except OSError:
        return False
    return program is not None and _OWN_SESSION in program
