"""The writers that PySpark calls: `write` in a task, `commit` and `abort` in a Python process on the driver.

Spark pickles a batch writer once, to the tasks and to the commit. It creates a streaming writer again for every
micro-batch and for its commit, so the driver learns the query and the run from the messages, or from what is open under
the stream's incarnation. A batch write in a `foreachBatch` function is treated as a separate stream, with the name of
the write after the query id: its tasks find the micro-batch in their local properties, as a stream's tasks do.

A writer is created in one process, a task runs in a second and a third one commits, so what only one of them needs is
imported where it is used.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from spark_eos import failpoints
from spark_eos.errors import ClientStateError, OptionError
from spark_eos.message_first import message_first
from spark_eos.metrics import SINK_METRICS
from spark_eos.metrics_export.sender import check_exportable, publish, published
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import process_state
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.sink.columns import check_append, check_columns, report_ignored
from spark_eos.sink.commit_report import CommitReport, last_report, leave_report, report_of
from spark_eos.sink.driver_end import before_driver_ends
from spark_eos.sink.incarnation import (
    checkpoint_of,
    current_incarnation,
    doubt_of,
    driver_folder,
    driver_name,
    end_incarnation,
    leave,
    new_incarnation,
)
from spark_eos.sink.messages import LocalProperties, Place, TaskMessage
from spark_eos.sink.spark_sockets import acknowledge_input, report_sockets
from spark_eos.sink.stream_sessions import refuse_unseen_query
from spark_eos.spark_api import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from spark_eos.worker_memory import loading_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_eos.sink.driver.committer import Committer

logger = logging.getLogger(__name__)
# The parent of all loggers of the sink.
_SINK_LOGGER: Final = logging.getLogger("spark_eos.sink")
if _SINK_LOGGER.level == logging.NOTSET:
    # A Python worker has no logging of its own. With spark.sql.pyspark.worker.logging.enabled Spark collects what is
    # logged in it, but only what the loggers' level allows; without any handler INFO is still discarded.
    _SINK_LOGGER.setLevel(logging.INFO)

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_MICRO_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# No topic has this name.
TOPICS_BY_COLUMN: Final = "*"
BATCH_JOB_MICRO_BATCH: Final = 0
# Spark may end right after a job, and nothing else would send its metrics.
_JOB_WAIT_SECONDS: Final = 5.0


@message_first
class BatchWriter(SentToTasks, DataSourceArrowWriter):
    """The writer of one DataFrame: all of it or nothing.

    In `foreachBatch` each micro-batch is written once, elsewhere each `jobId`; a job without one is written every time.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options: SinkOptions = _checked_first(sink_options(options), schema, overwrite=overwrite)
        self.query = self.options.job_id or f"job-{process_state().runtime.random.token_hex(12)}"
        self.run = process_state().runtime.random.token_hex(8)
        # This object is the job's only one: Spark pickles it to the tasks, the commit and the abort.
        self.incarnation = new_incarnation()
        self.driver = driver_name()
        # It does not apply to another query with the same options, and the tasks detect that.
        self.committed = last_report(repr(self.options))
        # Set by a driver that knows it; otherwise only the tasks do.
        self.place: Place | None = None
        # Set by the driver's commit, which something from outside may interrupt afterwards.
        self.is_committed = False

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        context = _task_context()
        place = foreach_batch_place(context, self.options, self.run, context.partitionId())
        # There is one writer for each micro-batch, but the ids belong to the run, which has one driver.
        incarnation = self.driver if place is not None else self.incarnation
        if place is None:
            place = Place(self.query, self.run, BATCH_JOB_MICRO_BATCH, context.partitionId(), self.run)
        may_be_decided = place.query != self.query or self.options.job_id is not None
        return _write(self.options, place, iterator, incarnation, self.committed, may_be_decided=may_be_decided)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        present = _all(messages)
        place = self._place(present)
        is_job = place.query == self.query
        # A job has no next micro-batch.
        report_place = None if is_job else repr(self.options)
        # Before the commit, after which an error is too late.
        from spark_eos.sink.old_rows import warn_of_old_rows

        with self._measured(place), _before_driver_ends():
            _commit(_committer(self.options, place, is_job=is_job), present, place.micro_batch, report_place)
            self.is_committed = True
            warn_of_old_rows(process_state(), self.options, present)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        leave("doubt", doubt_of(self.options))
        present = _present(messages)
        place = self._place(present)
        is_job = place.query == self.query
        try:
            if is_job and None in messages:
                from spark_eos.sink.abort_sweep import keep_sweeping

                keep_sweeping(self.options, self.incarnation, BATCH_JOB_MICRO_BATCH)
            with self._measured(place):
                _committer(self.options, place, is_job=is_job).abort(present, place.micro_batch)
        except Exception as error:
            _log_failed_abort(f"micro-batch {place.micro_batch} of {place.query}", error)

    def _measured(self, place: Place) -> AbstractContextManager[None]:
        """Count for the query that a micro-batch belongs to, or for the job; a job's process may end soon."""
        if place.query == self.query:
            return _measured(self.options, self.options.job_id or "", _JOB_WAIT_SECONDS)
        return _measured(self.options, place.query.partition("/")[0])

    def _place(self, messages: Sequence[TaskMessage]) -> Place:
        """Return what is committed; under Spark's data source API only the tasks know whether it is a micro-batch."""
        for message in messages:
            return message.place
        return self.place or Place(self.query, self.run, BATCH_JOB_MICRO_BATCH, 0, self.run)


@message_first
class StreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """The writer of a streaming query's micro-batches; output modes do not matter, as in Spark's sink."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, *, plans: bool = True) -> None:
        self.options: SinkOptions = sink_options(options)
        if self.options.job_id is not None:
            raise OptionError(
                "Option 'jobId' is for batch writes",
                remedy="Remove it: a streaming query is identified by its checkpoint",
            )
        if self.options.write_name is not None:
            raise OptionError(
                "Option 'writeName' is for batch writes in foreachBatch",
                remedy="Remove it: a streaming query writes once in each micro-batch",
            )
        self.options = _checked_first(self.options, schema, plans=plans)
        report_sockets(process_state())
        self.checkpoint = checkpoint_of(options)
        self.incarnation = current_incarnation(self.checkpoint) or driver_name()
        self.committed = last_report(self.checkpoint)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self.options, streaming_place(_task_context()), iterator, self.incarnation, self.committed)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make a micro-batch visible; without any task there is nothing to do."""
        present = _all(messages)
        if present:
            # Before the commit, after which an error is too late.
            from spark_eos.sink.old_rows import warn_of_old_rows

            with _before_driver_ends():
                self.options = _checked(self.options, plans=False)
                with _measured(self.options, present[0].place.query):
                    _commit(_committer(self.options, present[0].place), present, batchId, self.checkpoint)
                    warn_of_old_rows(process_state(), self.options, present)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the run has prepared; if no task has finished, the run is found by the incarnation."""
        leave("doubt", doubt_of(self.options))
        incarnation = end_incarnation(self.checkpoint)
        is_swept = incarnation is not None and None in messages
        try:
            from spark_eos.sink.abort_sweep import keep_sweeping, sweep_incarnation
        except ClientStateError as error:
            _log_failed_abort(f"micro-batch {batchId}", error)
            return
        if incarnation is not None and is_swept:
            keep_sweeping(self.options, incarnation, batchId)
        present = _present(messages)
        try:
            if present:
                with _measured(self.options, present[0].place.query):
                    _committer(self.options, present[0].place).abort(present, batchId)
            elif incarnation is not None:
                sweep_incarnation(process_state(), self.options, incarnation, batchId)
        except Exception as error:
            _log_failed_abort(f"micro-batch {batchId}", error)
            if incarnation is not None and not is_swept:
                keep_sweeping(self.options, incarnation, batchId)


def _checked_first(
    options: SinkOptions, schema: StructType, *, overwrite: bool = False, plans: bool = True
) -> SinkOptions:
    """Check what a writer is made with, and for one that plans tasks the cluster too; return the completed options."""
    check_columns(schema, options.topic)
    report_ignored(schema, process_state())
    check_append(overwrite)
    check_exportable(options.metrics)
    publish(options.metrics)
    # An abort needs no check of the cluster, and one that fails would keep it from ending what is open.
    if not plans:
        return options
    checked = _checked(options, plans=True)
    with loading_modules(process_state()):
        from spark_eos.sink.abort_sweep import sweep_at_the_end
    sweep_at_the_end(checked)
    return checked


def _checked(options: SinkOptions, *, plans: bool) -> SinkOptions:
    with loading_modules(process_state()):
        from spark_eos.sink.driver.preflight import preflight
    return preflight(process_state(), options, plans=plans)


def _write(
    options: SinkOptions,
    place: Place,
    rows: "Iterator[pa.RecordBatch]",
    incarnation: str | None,
    committed: CommitReport | None,
    *,
    may_be_decided: bool = True,
) -> TaskMessage:
    with loading_modules(process_state()):
        from spark_eos.sink.factory import task_writer
        from spark_eos.sink.task.transaction import watch

    failpoints.enter(options.prefix)
    acknowledge_input()
    writer = task_writer(
        process_state(),
        options,
        place,
        may_be_decided=may_be_decided,
        incarnation=incarnation,
        committed=committed,
    )
    watch(process_state(), writer.transaction, options)
    return writer.write(rows)


def _committer(options: SinkOptions, place: Place, *, is_job: bool = False) -> "Committer":
    with loading_modules(process_state()):
        from spark_eos.sink.factory import committer
        from spark_eos.sink.protocol.retirement import Retirement

    failpoints.enter(options.prefix)
    retirement = Retirement.REPLACE
    if is_job:
        retirement = Retirement.FORGET if options.job_id is None else Retirement.MARK
    return committer(process_state(), options, place.query, place.run, retirement=retirement, write=place.write)


@contextmanager
def _measured(options: SinkOptions, query: str, wait_seconds: float = 0.0) -> Iterator[None]:
    sink = options.write_name or options.topic or TOPICS_BY_COLUMN
    with SINK_METRICS.subject(query=query, sink=sink), published(options.metrics, wait_seconds):
        yield


def _before_driver_ends() -> AbstractContextManager[None]:
    return before_driver_ends(
        driver_folder(),
        lambda: ClientStateError(
            "Spark's driver has ended, or its temporary directory was deleted, so this micro-batch or job is not "
            "committed",
            checked=f"The directory {driver_folder()}, which Spark deletes when a driver ends",
            remedy="Start the driver again, and the query or job. If it had not ended, let no other program delete "
            "files in spark.local.dir",
        ),
    )


def _log_failed_abort(what: str, error: Exception) -> None:
    """Log it and do not raise: Spark would show "Writing job failed." in place of the error that led to the abort."""
    logger.error(
        "%s could not be aborted. What its tasks have open blocks read_committed readers until it is swept again, the "
        "query is started again, or transactionTimeout has passed: %s",
        what,
        error,
    )


def _commit(
    committer: "Committer", messages: Sequence[TaskMessage], micro_batch: int, report_place: str | None
) -> None:
    """Commit, and report to the tasks of the next micro-batch, if there is one."""
    committer.commit(messages, micro_batch)
    # Not everything that the messages name: what an earlier attempt or run has decided is dropped.
    if report_place is not None and committer.committed:
        report = report_of(committer.own.run, micro_batch, committer.committed, last_report(report_place))
        leave_report(report_place, report)


def streaming_place(context: TaskContext) -> Place:
    found = {name: context.getLocalProperty(name) for name in (_QUERY_PROPERTY, _RUN_PROPERTY, _MICRO_BATCH_PROPERTY)}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ClientStateError(
            f"Spark did not give the task its local properties {', '.join(missing)}",
            checked="TaskContext.getLocalProperty in the Python worker",
            remedy="Use PySpark 4.0 or newer, and start the query with writeStream",
        )
    micro_batch = int(str(found[_MICRO_BATCH_PROPERTY]))
    return Place(str(found[_QUERY_PROPERTY]), str(found[_RUN_PROPERTY]), micro_batch, context.partitionId())


def foreach_batch_place(context: LocalProperties, options: SinkOptions, write: str, split: int = 0) -> Place | None:
    """Return the micro-batch that a batch write belongs to, or None for one outside of `foreachBatch`."""
    query, run, micro_batch = (
        context.getLocalProperty(name) for name in (_QUERY_PROPERTY, _RUN_PROPERTY, _MICRO_BATCH_PROPERTY)
    )
    if not query or not micro_batch:
        if options.write_name is not None:
            raise OptionError(
                "Option 'writeName' is for writes in foreachBatch, but this write belongs to no streaming query",
                checked=f"The task's local properties {_QUERY_PROPERTY} and {_MICRO_BATCH_PROPERTY}",
                remedy="For a batch job use jobId. In a thread that the foreachBatch function starts, use "
                "pyspark.InheritableThread, which passes on Spark's properties, with spark_eos.write",
            )
        if options.job_id is None:
            refuse_unseen_query(context)
        return None
    if options.job_id is not None:
        raise OptionError(
            "Option 'jobId' is for batch jobs, and this is a write in foreachBatch",
            remedy="Remove it: a micro-batch is identified by Spark's query id and batch id. If one function "
            'writes more than once to one topic, name the writes with option("writeName", ...)',
        )
    if run is None or not _RUN_ID.fullmatch(run):
        raise ClientStateError(
            f"The job group of this task is {run!r} instead of the id of the query's run",
            checked=f"The task's local property {_RUN_PROPERTY}",
            remedy="Do not set a job group in the foreachBatch function; use a job description or job tags",
        )
    name = options.write_name or options.topic or TOPICS_BY_COLUMN
    return Place(f"{query}/{name}", run, int(micro_batch), split, write)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ClientStateError("write() was called outside of a Spark task")
    return context


def _all(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Return the messages of a commit: the rows of a task without one would be lost."""
    missing = [str(split) for split, message in enumerate(messages) if message is None]
    if missing:
        raise ClientStateError(
            f"Spark asks for a commit without the results of tasks {', '.join(missing)} of {len(messages)}",
            checked="The messages that Spark gave to the commit",
            remedy="Start the query or job again: nothing of it is visible. With trigger(continuous=...) use another "
            "trigger: Spark passes no rows to a sink in Python then, and only logs this error",
        )
    return _present(messages)


def _present(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [cast(TaskMessage, message) for message in messages if message is not None]
