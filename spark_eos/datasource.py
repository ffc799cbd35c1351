"""The format `eos-kafka`: its names, schema, readers and writers.

The packages are imported inside the methods: Spark imports this module in every session to learn the names of data
sources, and a task that only reads has no use for the sink.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT_NAME = "eos-kafka"


class EosKafkaDataSource(DataSource):
    """The drop-in for Spark's own `format("kafka")` that writes exactly once and reads only what was committed.

    Example: `spark.read.format("eos-kafka").option("kafka.bootstrap.servers", address).option("subscribe", "t").load()`
    """

    @classmethod
    def name(cls) -> str:
        """Name the format, as users write it."""
        return FORMAT_NAME

    def schema(self) -> "StructType":
        """Give the fixed schema of the source, which only `includeHeaders` changes."""
        from spark_eos.options.source import include_headers
        from spark_eos.source.schema import source_schema

        return source_schema(include_headers(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Read a bounded range of a topic once."""
        from spark_eos.source.spark_readers import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Read a topic micro-batch by micro-batch."""
        from spark_eos.source.spark_readers import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceArrowWriter:
        """Write one DataFrame, all of it or nothing."""
        from spark_eos.sink.spark_writers import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Write every micro-batch exactly once."""
        from spark_eos.sink.spark_writers import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
