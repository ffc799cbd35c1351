#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session. An arrow_udf notes how many rows it gets at once: from a Parquet file of
# 25,000 small rows, from one of 100 rows of 1 MiB, and from a Python source that yields one record batch of 25,000 rows. First
# with the defaults, then with spark.sql.execution.arrow.pythonUDF.columnarInput.enabled.
#
# Seen: 1. By default the function gets as many rows as spark.sql.execution.arrow.maxRecordsPerBatch says, and as many bytes as
#          maxBytesPerBatch, from all three.
#       2. With columnar input it gets the Parquet reader's batches: 4,096 rows, with a maxRecordsPerBatch of 1,000 as of 10,000, and
#          all 100 MiB of the large rows, with a maxBytesPerBatch of 8 MiB.
#       3. From a Python source it gets the same as before: the batches that the source yields are not passed on.
#
# Surprising, because the setting is to save a conversion, not to lift the limits that hold a worker's memory; and because a Python
# source, which yields Arrow, is the one input that it does nothing for.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >drive.py <<'PYTHON'
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.functions import arrow_udf
from seen import see
from spark_session import note, session, take_notes

ROWS, LARGE, MIB = 25_000, 100, 1 << 20
ARROW = "spark.sql.execution.arrow."


class Reader(DataSourceReader):
    def read(self, partition):
        yield pa.RecordBatch.from_pydict({"id": pa.array(range(ROWS), pa.int64())})


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "id bigint"

    def reader(self, schema):
        return Reader()


spark = session("local[1]")


@arrow_udf("bigint")
def length(values: pa.Array) -> pa.Array:
    note(len(values))
    return pa.array([0] * len(values), pa.int64())


spark.dataSource.register(Source)
spark.range(0, ROWS, 1, 1).write.parquet("small")
spark.range(0, LARGE, 1, 1).selectExpr(f"repeat('x', {MIB}) AS id").write.parquet("large")
FRAMES = {"small": spark.read.parquet("small"), "large": spark.read.parquet("large"), "source": spark.read.format("source").load()}


def batches(name, **limits):
    """Return the numbers of rows that the function gets, under limits."""
    for limit, value in limits.items():
        spark.conf.set(ARROW + limit, value)
    FRAMES[name].select(length("id")).write.format("noop").mode("overwrite").save()
    for limit in limits:
        spark.conf.unset(ARROW + limit)
    return [int(rows) for rows in take_notes()]


for enabled in (False, True):
    spark.conf.set(ARROW + "pythonUDF.columnarInput.enabled", str(enabled))
    print(f"columnar input: {enabled}")
    read = [4096] * 6 + [424]
    see("  small rows", batches("small"), read if enabled else [10_000, 10_000, 5_000])
    see("  small rows, 1,000 at most", batches("small", maxRecordsPerBatch="1000"), read if enabled else [1000] * 25)
    large = batches("large", maxBytesPerBatch=str(8 * MIB))
    print(f"  rows of 1 MiB, 8 MiB at most: {large}")
    see("    rows, more than 9 in a batch", (sum(large), max(large) > 9), (LARGE, enabled))
    see("  a Python source", batches("source"), [10_000, 10_000, 5_000])
spark.stop()
PYTHON
quietly python drive.py
