"""The data source `eos-kafka`, which Spark asks for its readers and writers.

The readers and writers are imported inside the methods: Spark imports this module in every session to learn the names
of data sources, and a task that only reads does not need the sink.
"""

from typing import TYPE_CHECKING

from spark_eos.message_first import message_first
from spark_eos.sent_to_tasks import SentToTasks
from spark_eos.spark_api import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT_NAME = "eos-kafka"


@message_first
class EosKafkaDataSource(SentToTasks, DataSource):
    """Spark's `format("kafka")` with exactly-once writes, and reads that see committed records only.

    Users do not create it: where the package is installed, Spark finds the format `eos-kafka`. Columns and options are
    those of `kafka` (Spark's Structured Streaming + Kafka Integration Guide), options of the Kafka client with the
    prefix `kafka.`. It needs PySpark 4.0 and Kafka 3.6, or newer; PySpark 3.5 has `spark_eos.foreach_batch_sink` and
    `spark_eos.write`. The examples use a session `spark` and a broker:

    >>> from broker_core import EmbeddedBroker
    >>> kafka = EmbeddedBroker(topics={"lines": 2, "shouted": 2}).start()
    >>> address = {"kafka.bootstrap.servers": kafka.bootstrap_servers}

    **Batch jobs.** A write needs the column `value`, binary or string, and takes `key`, `topic`, `headers`, `partition`
    and `timestamp`. All rows become visible or none. A job that is run again under the same `jobId`, with the same
    rows, writes nothing twice:

    >>> rows = spark.createDataFrame([("1", "a line"), ("2", "another")], "key string, value string")
    >>> write = rows.write.format("eos-kafka").mode("append").options(**address)
    >>> write.option("topic", "lines").option("jobId", "load-2026-11-22").save()
    >>> write.option("topic", "lines").option("jobId", "load-2026-11-22").save()

    A read has the columns `key`, `value`, `topic`, `partition`, `offset`, `timestamp` and `timestampType`, and with
    `includeHeaders` also `headers`. It ends at the last stable offset, and aborted records are left out:

    >>> lines = spark.read.format("eos-kafka").options(**address).option("subscribe", "lines").load()
    >>> sorted(row.text for row in lines.selectExpr("cast(value as string) as text").collect())
    ['a line', 'another']

    **Streams.** Every micro-batch is written exactly once, whatever tasks, the driver or brokers do. The checkpoint
    decides what a restarted query reads, and it can be one of `format("kafka")`:

    >>> import tempfile
    >>> checkpoint = tempfile.TemporaryDirectory()
    >>> query = (
    ...     spark.readStream.format("eos-kafka").options(**address)
    ...     .option("subscribe", "lines").option("startingOffsets", "earliest").load()
    ...     .selectExpr("key", "upper(cast(value as string)) as value")
    ...     .writeStream.format("eos-kafka").options(**address).option("topic", "shouted")
    ...     .option("checkpointLocation", checkpoint.name).trigger(availableNow=True).start()
    ... )
    >>> query.awaitTermination(120)
    True
    >>> sorted(kafka.records("shouted").values)
    [b'A LINE', b'ANOTHER']
    >>> kafka.close()
    >>> checkpoint.cleanup()

    Spark refuses the output mode `update` for all Python sinks. Write such a query in `foreachBatch`, with the same
    options; a write there needs no `jobId`, only a `writeName` if the function writes to one topic twice.

    **Guarantees and limits.** Each task writes in a transaction of its own; the driver records one decision for each
    micro-batch and then commits them all (KIP-98, KIP-890). Consumers have to read with
    `isolation.level=read_committed`. The transactions of a micro-batch become visible one after the other. It has to
    end within `transactionTimeout`, by default the broker's `transaction.max.timeout.ms` but at most 15 minutes. A
    micro-batch or job that is run again with other rows stops with an error; the rows are not written.

    Errors derive from `spark_eos.EosKafkaError` and say what happened, what was checked, and what to do; options
    that cannot be used raise `spark_eos.OptionError`. The documentation lists all options, metrics and access rights.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> "StructType":
        """Return the schema of the source, which depends on `includeHeaders` only."""
        _check_libraries()
        from spark_eos.options.source import include_headers
        from spark_eos.source.schema import source_schema

        return source_schema(include_headers(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the reader of a batch query."""
        _check_libraries()
        from spark_eos.source.spark_readers import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a streaming query."""
        _check_libraries()
        from spark_eos.source.spark_readers import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch job."""
        _check_libraries()
        from spark_eos.sink.spark_writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of a streaming query."""
        _check_libraries()
        from spark_eos.sink.spark_writers import StreamWriter

        # Spark makes the data source where it plans a micro-batch, and sends it to the process that ends one.
        return StreamWriter(self.options, schema, overwrite, plans=not self.is_received)


def _check_libraries() -> None:
    from spark_eos.column_libraries import check_column_libraries

    check_column_libraries()
