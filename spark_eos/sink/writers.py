"""Be the writers that PySpark calls: `write` in a task, `commit` and `abort` in a Python process on the driver.

Spark pickles a batch writer once, to the tasks and to the commit. A streaming writer is made anew for every micro-batch
and again for its commit, so nothing it remembers lasts: the driver learns the query and the run from the messages,
or from what is open under the stream's launch.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from spark_eos import failpoints
from spark_eos.errors import ClientStateError, OptionError
from spark_eos.metrics import check_servable, serve
from spark_eos.sink.abandoned import sweep_again, sweep_launch
from spark_eos.sink.columns import check_append, check_columns
from spark_eos.sink.launch import checkpoint_of, current_launch, end_launch, new_launch
from spark_eos.sink.messages import TaskMessage
from spark_eos.sink.metrics import METRICS, PREFIX
from spark_eos.sink.preflight import preflight
from spark_eos.sink.task import Place
from spark_eos.sink_options import SinkOptions, sink_options

if TYPE_CHECKING:
    from spark_eos.sink.committer import Committer

LOG: Final = logging.getLogger("spark_eos.sink")
if LOG.level == logging.NOTSET:
    # A Python worker has no logging of its own. With spark.sql.pyspark.worker.logging.enabled Spark collects what is
    # logged in it, but only what the loggers let through; without any handler INFO still goes nowhere.
    LOG.setLevel(logging.INFO)

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_MICRO_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
BATCH_JOB_MICRO_BATCH: Final = 0


class BatchWriter(DataSourceArrowWriter):
    """Write one DataFrame, all of it or nothing; under a `jobId` once, however often the job is run."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options: SinkOptions = sink_options(options)
        check_columns(schema, self.options.topic)
        check_append(overwrite)
        check_servable(self.options.metrics_place)
        self.options = preflight(self.options)
        self.query = self.options.job_id or f"job-{secrets.token_hex(12)}"
        self.run = secrets.token_hex(8)
        # This object is the job's only one: Spark pickles it to the tasks, the commit and the abort.
        self.launch = new_launch()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of one task."""
        from spark_eos.sink.watcher import watched
        from spark_eos.sink.wiring import task_writer

        failpoints.enter(self.options.prefix)
        split = _task_context().partitionId()
        place = Place(self.query, self.run, BATCH_JOB_MICRO_BATCH, split)
        named = self.options.job_id is not None
        writer = task_writer(self.options, place, may_be_decided=named, launch=self.launch)
        writer.transaction = watched(writer.transaction, self.options.client)
        return writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all rows visible."""
        self._committer().commit(_present(messages), BATCH_JOB_MICRO_BATCH)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the job has prepared."""
        if None in messages:
            sweep_again(self.options, self.launch, BATCH_JOB_MICRO_BATCH)
        self._committer().abort(_present(messages), BATCH_JOB_MICRO_BATCH)

    def _committer(self) -> "Committer":
        from spark_eos.sink.closing import Closing
        from spark_eos.sink.wiring import committer

        failpoints.enter(self.options.prefix)
        serve(METRICS, PREFIX, self.options.metrics_place)
        named = self.options.job_id is not None
        closing = Closing.MARK if named else Closing.FORGET
        return committer(self.options, self.query, self.run, may_be_decided=named, closing=closing)


class StreamWriter(DataSourceStreamArrowWriter):
    """Write every micro-batch of a streaming query exactly once; output modes do not matter, as in Spark's sink."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:  # noqa: ARG002
        self.options: SinkOptions = sink_options(options)
        if self.options.job_id is not None:
            raise OptionError(
                "Option 'jobId' is for batch writes", remedy="Remove it: a streaming query is known by its checkpoint"
            )
        check_columns(schema, self.options.topic)
        check_servable(self.options.metrics_place)
        self.options = preflight(self.options)
        self.checkpoint = checkpoint_of(options)
        self.launch = current_launch(self.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of one task of a micro-batch."""
        from spark_eos.sink.watcher import watched
        from spark_eos.sink.wiring import task_writer

        failpoints.enter(self.options.prefix)
        place = streaming_place(_task_context())
        writer = task_writer(self.options, place, may_be_decided=True, launch=self.launch)
        writer.transaction = watched(writer.transaction, self.options.client)
        return writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make a micro-batch visible; without any task there is nothing to do."""
        present = _present(messages)
        if present:
            self._committer(present[0]).commit(present, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what the run has open; where no task has finished, the run is known by the launch."""
        launch = end_launch(self.checkpoint)
        if launch is not None and None in messages:
            sweep_again(self.options, launch, batchId)
        present = _present(messages)
        if present:
            self._committer(present[0]).abort(present, batchId)
        elif launch is not None:
            sweep_launch(self.options, launch, batchId)

    def _committer(self, message: TaskMessage) -> "Committer":
        from spark_eos.sink.wiring import committer

        failpoints.enter(self.options.prefix)
        serve(METRICS, PREFIX, self.options.metrics_place)
        return committer(self.options, message.query, message.run, may_be_decided=True)


def streaming_place(context: TaskContext) -> Place:
    """Read from a task's local properties which micro-batch of which query and run it belongs to."""
    found = {name: context.getLocalProperty(name) for name in (_QUERY_PROPERTY, _RUN_PROPERTY, _MICRO_BATCH_PROPERTY)}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ClientStateError(
            f"Spark did not tell the task its local properties {', '.join(missing)}",
            checked="TaskContext.getLocalProperty in the Python worker",
            remedy="Use PySpark 4.2 or newer, and start the query with writeStream",
        )
    micro_batch = int(str(found[_MICRO_BATCH_PROPERTY]))
    return Place(str(found[_QUERY_PROPERTY]), str(found[_RUN_PROPERTY]), micro_batch, context.partitionId())


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ClientStateError("write was called outside of a Spark task")
    return context


def _present(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Drop the places of tasks that failed."""
    return [cast(TaskMessage, message) for message in messages if message is not None]
