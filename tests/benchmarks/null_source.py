"""A source of prepared Arrow batches in memory: the minimum cost of any source written in Python.

Options: `rows` in all, `recordBytes` of each value, `partitions` to read, one task each.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_eos.source.schema import arrow_schema, source_schema

NULL_SOURCE_FORMAT = "null-arrow-source"
# About the size of one fetch response.
_BATCH_BYTES = 1024 * 1024


@cache
def ready_batch(count: int, size: int) -> pa.RecordBatch:
    """Make one batch of so many records, once in a process."""
    columns = [
        pa.array([str(number).encode() for number in range(count)]),
        pa.array([b"x" * size] * count),
        pa.array(["topic"] * count),
        pa.array(np.zeros(count, "int32")),
        pa.array(np.arange(count)),
        pa.array(np.full(count, 1_700_000_000_000_000), pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(count, "int32")),
    ]
    return pa.record_batch(columns, schema=arrow_schema(False))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, record_bytes: int, partitions: int) -> None:
        self.rows, self.record_bytes, self.partition_count = rows, record_bytes, partitions

    def partitions(self) -> list[InputPartition]:
        each, more = divmod(self.rows, self.partition_count)
        return [InputPartition(each + (number < more)) for number in range(self.partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        left = partition.value
        batch = ready_batch(max(1, min(left, _BATCH_BYTES // self.record_bytes)), self.record_bytes)
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class NullSource(DataSource):
    """A data source whose records cost nothing."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NULL_SOURCE_FORMAT

    def schema(self) -> StructType:
        """Return the columns of our source."""
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader(*(int(self.options[name]) for name in ("rows", "recordBytes", "partitions")))
