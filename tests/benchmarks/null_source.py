"""Give Spark Arrow batches that lie ready: the ceiling over any source written in Python.

    spark.dataSource.register(ReadySource)
    spark.read.format(READY_FORMAT).option("rows", 2_000_000).option("partitions", 4).option("valueBytes", 90).load()

The rows have the columns of the `eos-kafka` source, and the batches are as large as that makes them of a fetch.
"""

import functools
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_eos.source.schema import arrow_schema, source_schema

READY_FORMAT = "ready-arrow"
TOPIC = "from"
_FETCHED_BYTES = 4 * 1024 * 1024
_RECORD_OVERHEAD_BYTES = 10
_DEFAULTS = {"rows": "2000000", "partitions": "4", "valuebytes": "90"}


class ReadySource(DataSource):
    """Offer the reader that reads nothing."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return READY_FORMAT

    def schema(self) -> StructType:
        """Give the columns of the `eos-kafka` source."""
        return source_schema(False)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Give rows once."""
        return _Reader(self.options)


class _Rows(InputPartition):
    pass


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._rows, self._partitions, self._value_bytes = (int(given.get(name, _DEFAULTS[name])) for name in _DEFAULTS)

    def partitions(self) -> list[InputPartition]:
        """Cut the rows as they would lie in a topic's partitions."""
        bounds = [self._rows * number // self._partitions for number in range(self._partitions + 1)]
        return [_Rows((number, end - begin)) for number, (begin, end) in enumerate(pairwise(bounds))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the same batch again and again."""
        number, left = partition.value
        batch = ready_batch(number, self._value_bytes)
        while left > 0:
            yield batch.slice(0, left) if left < batch.num_rows else batch
            left -= batch.num_rows


@functools.lru_cache(maxsize=4)
def ready_batch(partition: int, value_bytes: int) -> pa.RecordBatch:
    """Make as many rows as a fetch brings."""
    count = max(1, _FETCHED_BYTES // (value_bytes + _RECORD_OVERHEAD_BYTES))
    offsets = pa.array(range(count), pa.int64())
    schema = arrow_schema(False)
    columns = [
        offsets.cast(pa.string()).cast(pa.binary()),
        pa.array([b"x" * value_bytes] * count, pa.binary()),
        pa.repeat(pa.scalar(TOPIC, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        offsets,
        pa.repeat(pa.scalar(1_700_000_000_000_000, pa.int64()), count).view(schema.field("timestamp").type),
        pa.repeat(pa.scalar(0, pa.int32()), count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
