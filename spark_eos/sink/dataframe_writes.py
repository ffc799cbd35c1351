"""Writes of a DataFrame without Spark's data source API: tasks by `mapInArrow`, the commit in the driver's Python.

PySpark 3.5 has no Python data sources. On later versions the same writes work too. What a task does, what a micro-batch
is called and how it is committed are those of the data source's batch writer: `Dataset.mapInArrow` calls its `write` in
a worker, and the message of each task comes back as a row.
"""

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Unpack

from pyspark.errors import PySparkException

from spark_eos.column_libraries import check_column_libraries
from spark_eos.errors import ClientStateError, EosKafkaError
from spark_eos.runtime import exclusive_state
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.sink.incarnation import use_folder
from spark_eos.sink.naming import run_again
from spark_eos.sink.spark_writers import BatchWriter, foreach_batch_place
from spark_eos.sink.stream_sessions import refuse_ended_micro_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from spark_eos.options.write_options import WriteOptions

logger = logging.getLogger(__name__)
_MESSAGES: Final = "message binary"
# The JVM may close the connection of the first call after an interrupt before it answers.
_CANCEL_ATTEMPTS: Final = 3


def write(frame: "DataFrame", **options: "Unpack[WriteOptions]") -> None:
    """Write a DataFrame exactly once, as `frame.write.format("eos-kafka")` with these options does.

    The options are those of the sink; names with a dot are passed as `**{"kafka.bootstrap.servers": address}`. In a
    function of `foreachBatch` the write is part of the micro-batch, elsewhere it is a batch job, which `jobId` makes
    repeatable. An option that is None counts as not set. All rows become visible or none. Raises `EosKafkaError`, and
    what Spark raises if a task fails. Threads may write at the same time.

    >>> import spark_eos
    >>> from broker_core import EmbeddedBroker
    >>> rows = spark.createDataFrame([("a line",)], "value string")
    >>> with EmbeddedBroker(topics={"lines": 1}) as kafka:
    ...     spark_eos.write(rows, topic="lines", **{"kafka.bootstrap.servers": kafka.bootstrap_servers})
    ...     kafka.records("lines").values
    [b'a line']
    """
    _write(frame, options, is_micro_batch=False)


def foreach_batch_sink(**options: "Unpack[WriteOptions]") -> "Callable[[DataFrame, int], None]":
    """Return a function for `writeStream.foreachBatch` that writes each micro-batch exactly once.

    The options are those of `write`. The query's checkpoint must be kept: query id and batch id name the micro-batch.

        query = frame.writeStream.foreachBatch(foreach_batch_sink(topic="orders", **kafka)).start()
    """

    def write_micro_batch(frame: "DataFrame", _batch_id: int) -> None:
        _write(frame, options, is_micro_batch=True)

    return write_micro_batch


def _write(frame: "DataFrame", options: Mapping[str, Any], *, is_micro_batch: bool) -> None:
    check_column_libraries()
    texts = option_texts(options)
    # A driver runs several queries in threads of one process, and a client serves one thread.
    with exclusive_state(repr(texts)):
        context = _spark_context(frame)
        # Deleted when the JVM ends. After `spark.stop()` this process goes on, and aborts itself.
        use_folder(getattr(context, "_temp_dir", None))
        writer = BatchWriter(texts, frame.schema, overwrite=False)
        if context is not None:
            writer.place = foreach_batch_place(context, writer.options, writer.run)
            if writer.place is not None:
                refuse_ended_micro_batch(context, writer.place)
        if is_micro_batch and writer.place is None:
            # Written as a batch job, the micro-batch would be written again whenever it is run again.
            raise ClientStateError(
                "The function of foreach_batch_sink was called outside of a micro-batch, or over Spark Connect",
                checked="The local properties of Spark's query in the thread that called it",
                remedy="Pass the function to writeStream.foreachBatch and call it in no other thread. Over Spark "
                "Connect call spark_eos.write in a function of your own, with a jobId made of the query's name and "
                "the batch id",
            )
        # Spark does not say which tasks have finished before a job failed: what is open is found by its name.
        messages: list[Any] = [None]
        try:
            with _job_ends_with_its_call(context, f"eos-kafka-{writer.run}"):
                rows = frame.mapInArrow(_Task(writer), _MESSAGES).collect()
            messages = [pickle.loads(row.message) for row in rows]
            writer.commit(messages)
        except BaseException as error:
            # Errors of this package say themselves whether the micro-batch or job is decided.
            if None not in messages and not writer.is_committed and not isinstance(error, EosKafkaError):
                named = writer.place or writer
                logger.warning(
                    "the commit of this write was interrupted. If all of its rows are visible, it is complete. If not, "
                    "the missing rows are lost when their transactions time out; to have each row once, %s",
                    run_again(named.query, named.run),
                )
            writer.abort(messages)
            raise


@contextmanager
def _job_ends_with_its_call(context: "SparkContext | None", tag: str) -> Iterator[None]:
    """Cancel the job of a call that is interrupted: Spark goes on with it, and what its tasks prepare would stay open.

    Ctrl-C, a notebook and a limit of time raise an exception in the thread that waits. Spark Connect cancels by itself.
    """
    if context is None:
        yield
        return
    # A platform that filters calls of Spark refuses some; the write does not need this one.
    with suppress(Exception):
        context.addJobTag(tag)
    try:
        yield
    except BaseException:
        for _ in range(_CANCEL_ATTEMPTS):
            with suppress(Exception):
                context.cancelJobsWithTag(tag)
                break
        raise
    finally:
        with suppress(Exception):
            context.removeJobTag(tag)


def _spark_context(frame: "DataFrame") -> "SparkContext | None":
    """Return the context of a frame, whose properties tell the micro-batch; over Spark Connect there is none."""
    try:
        return frame.sparkSession.sparkContext
    except (PySparkException, NotImplementedError, AttributeError):
        return None


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that are set, with their values as `DataFrameWriter.option` passes them on."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


class _Task(SentToTasks):
    """The function of each task: the rows are prepared, and the writer's message becomes a row."""

    def __init__(self, writer: "BatchWriter") -> None:
        self._writer = writer

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        message = pickle.dumps(self._writer.write(batches))
        yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], ["message"])
