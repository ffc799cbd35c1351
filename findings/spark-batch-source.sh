#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small batch source and a streaming source in Python.
#
# Seen: 1. A DataFrame of a batch source plans once in its life: every later action, and every DataFrame made from it, reads the
#          partitions of the first action. So does a temporary view of it in each statement, also after REFRESH TABLE, and
#          the static side of a stream in each micro-batch. New data is seen only after another load().
#       2. A batch source whose partitions() returns an empty list is read all the same, once, with a partition that the source
#          never made, whose value is None. A streaming source that returns an empty list is not read.
#       3. spark.sql.execution.arrow.maxRecordsPerBatch of 0 or -1 (no limit) makes every read of a Python source fail. A writer
#          gets all of 25,000 small rows in one batch, but 30 rows of 4 MiB in two, of 16 and of 14: a batch also ends at 64 MiB.
#
# Surprising, because files and Spark's own sources are looked up for each action, because "nothing to read" reads something,
# and because the setting's documentation says that 0 and less mean no limit.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >batch.py <<'PYTHON'
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from seen import see, wait_for
from spark_session import Source, note, session, take_notes


class Reader(DataSourceReader):
    def __init__(self, planned):
        self.planned = planned

    def partitions(self):
        note("plan")
        return [InputPartition(n) for n in range(self.planned)]

    def read(self, partition):
        note(f"read {type(partition).__name__} {partition.value}")
        yield (1,)


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self):
        return {"n": 1}

    def partitions(self, start, end):
        note("plan")
        return []

    def read(self, partition):
        note("read")
        yield (1,)


class Writer(DataSourceArrowWriter):
    def write(self, batches):
        note(f"write batches of {[batch.num_rows for batch in batches]}")
        return WriterCommitMessage()


class OwnSource(Source):
    def reader(self, schema):
        return Reader(int(self.options["planned"]))

    def streamReader(self, schema):
        return StreamReader()

    def writer(self, schema, overwrite):
        return Writer()


spark = session()
spark.dataSource.register(OwnSource)


def load(planned):
    return spark.read.format("source").option("planned", planned).load()


frame = load(1)
counts = [frame.count(), frame.count(), frame.filter("n = 1").count(), frame.union(frame).count()]
see("1. counts of one DataFrame", counts, [1, 1, 1, 2])
see("   plans for its four actions", take_notes().count("plan"), 1)
frame.createOrReplaceTempView("view")
see("   counts of a view of it", [spark.sql("SELECT * FROM view").count() for _ in range(2)], [1, 1])
spark.catalog.refreshTable("view")
see("   and after REFRESH TABLE", spark.sql("SELECT * FROM view").count(), 1)
see("   plans for these", take_notes().count("plan"), 0)
clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
joined = []
query = clock.crossJoin(load(2)).writeStream.foreachBatch(lambda rows, _: joined.append(rows.count())).start()
wait_for(lambda: len(joined) > 1 or query.exception())
query.stop()
see("   rows of two micro-batches that are joined with it", joined[:2], [2, 2])
see("   plans for all of them", take_notes().count("plan"), 1)
see("2. rows of a batch source without partitions", load(0).count(), 1)
see("   its calls", take_notes(), ["plan", "read InputPartition None"])
ends = []
query = spark.readStream.format("source").load().writeStream.foreachBatch(lambda rows, _: ends.append(rows.count())).start()
wait_for(lambda: ends or query.exception())
query.stop()
see("   rows of a streaming source without partitions", ends[0], 0)
see("   its calls", take_notes(), ["plan"])
for limit in (0, -1):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", limit)
    spark.range(25_000).selectExpr("int(id) n").coalesce(1).write.format("source").mode("append").save()
    see(f"3. a write with maxRecordsPerBatch {limit}", take_notes(), ["write batches of [25000]"])
    spark.range(30).selectExpr("repeat('x', 4 * 1024 * 1024) n").coalesce(1).write.format("source").mode("append").save()
    see("   of rows of 4 MiB", take_notes(), ["write batches of [16, 14]"])
    try:
        load(1).collect()
        error = None
    except AnalysisException as raised:
        error = raised
    see(f"   a read with maxRecordsPerBatch {limit} fails", error is not None, True)
    print("  ", [line for line in str(error).splitlines() if "AssertionError" in line])
PYTHON
quietly python batch.py
