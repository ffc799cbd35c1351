"""Writes of a DataFrame without Spark's data source API: tasks by `mapInArrow`, the commit in the driver's Python.

PySpark 3.5 has no Python data sources. On later versions the same writes work too. What a task does, what a micro-batch
is called and how it is committed are those of the data source's batch writer: `Dataset.mapInArrow` calls its `write` in
a worker, and the message of each task comes back as a row.
"""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_eos.sink.spark_writers import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES: Final = "message binary"


def write(frame: "DataFrame", **options: Any) -> None:
    """Write a DataFrame exactly once, as `frame.write.format("eos-kafka")` with these options does.

    The options are those of the sink; names with a dot are passed as `**{"kafka.bootstrap.servers": address}`. In a
    function of `foreachBatch` the write is part of the micro-batch, elsewhere it is a batch job, which `jobId` makes
    repeatable. All rows become visible or none. Raises `EosKafkaError`.

    >>> import spark_eos
    >>> from broker_core import EmbeddedBroker
    >>> rows = spark.createDataFrame([("a line",)], "value string")
    >>> with EmbeddedBroker(topics={"lines": 1}) as kafka:
    ...     spark_eos.write(rows, topic="lines", **{"kafka.bootstrap.servers": kafka.bootstrap_servers})
    ...     [each.value for each in kafka.records("lines", 0) if not each.is_control]
    [b'a line']
    """
    writer = BatchWriter({name: _text(value) for name, value in options.items()}, frame.schema, overwrite=False)
    try:
        rows = frame.mapInArrow(partial(_prepare, writer), _MESSAGES).collect()
    except BaseException:
        # Spark does not say which tasks have finished: what is open is found by the job's name.
        writer.abort([None])
        raise
    writer.commit([pickle.loads(row.message) for row in rows])


def foreach_batch_sink(**options: Any) -> "Callable[[DataFrame, int], None]":
    """Return a function for `writeStream.foreachBatch` that writes each micro-batch exactly once.

    The options are those of `write`. The query's checkpoint must be kept: query id and batch id name the micro-batch.

        query = frame.writeStream.foreachBatch(foreach_batch_sink(topic="orders", **kafka)).start()
    """

    def write_micro_batch(frame: "DataFrame", _batch_id: int) -> None:
        write(frame, **options)

    return write_micro_batch


def _text(value: Any) -> str:
    """Return an option's value as `DataFrameWriter.option` passes it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _prepare(writer: BatchWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    message = pickle.dumps(writer.write(batches))
    yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], ["message"])
