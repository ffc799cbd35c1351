#!/bin/bash
# Run: PySpark 4.1.4 and three sinks that write a micro-batch once: Spark's own file sink (parquet), Delta Lake 4.4.0 and Iceberg 1.12.0
# for Spark 4.1. Files with a row each arrive one after the other, and a query with availableNow copies them into a table. Needs a JDK.
#
# Seen: 1. The checkpoint is put back as it was one micro-batch ago, as from a backup. The next micro-batch has the rows b and c, of which b
#          is in the table. All three sinks pass over both: c is lost for good. The query succeeds, and goes on with d.
#       2. What the query reports of that micro-batch: no row in with the file sink and Delta, and with Iceberg two rows written.
#       3. Iceberg, a micro-batch that is repeated, as after a kill before its entry in `commits`: its row is there once. If
#          expire_snapshots has been called meanwhile, and another writer has appended, it is there twice. Delta with VACUUM: once.
#
# Surprising, because each sink is exactly once, and because a query that goes on from an older checkpoint looks like one that catches
# up. The sinks compare numbers of micro-batches, not rows. Iceberg looks for its number in the table's snapshots, which are to expire.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.1.4 pyarrow==26.0.1
jars_of tables io.delta:delta-spark_4.1_2.13:4.4.0 org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
cat >older_checkpoint.py <<'PYTHON'
import os
import shutil

from seen import see
from table_session import table_session

HERE = os.getcwd()
spark = table_session()


class Copy:
    """A query that copies rows from a folder of files into a table."""

    def __init__(self, sink, name):
        self.sink, self.name = sink, name
        self.arrivals, self.path, self.checkpoint = (f"{HERE}/{sink}-{name}-{what}" for what in ("input", "table", "checkpoint"))
        self.table = f"iceberg.tables.{name}"
        os.mkdir(self.arrivals)
        if sink == "iceberg":
            spark.sql(f"CREATE TABLE {self.table} (value STRING) USING iceberg")

    def run(self, *arriving):
        """Let rows arrive, run the query to its end, and return the numbers, rows in and rows out of its micro-batches."""
        for row in arriving:
            with open(f"{HERE}/{row}", "w", encoding="utf-8") as file:
                file.write(f"{row}\n")
            os.rename(f"{HERE}/{row}", f"{self.arrivals}/{row}")
        rows = spark.readStream.format("text").load(self.arrivals)
        writer = rows.writeStream.format(self.sink).option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        query = writer.toTable(self.table) if self.sink == "iceberg" else writer.start(self.path)
        query.awaitTermination()
        return [(each["batchId"], each["numInputRows"], each["sink"]["numOutputRows"]) for each in query.recentProgress]

    def rows(self):
        """Return the rows of the table."""
        frame = spark.table(self.table) if self.sink == "iceberg" else spark.read.format(self.sink).load(self.path)
        return "".join(sorted(value for (value,) in frame.collect()))

    def repeat(self, number):
        """Run a micro-batch again, as if the driver had been killed before it noted its end; return what its numbers say."""
        for name in (f"{number}", f".{number}.crc"):
            os.remove(f"{self.checkpoint}/commits/{name}")
        return self.run()


REPORTED = {"parquet": (0, -1), "delta": (0, -1), "iceberg": (2, 2)}
for sink, (rows_in, rows_out) in REPORTED.items():
    copy = Copy(sink, "restored")
    copy.run("a")
    shutil.copytree(copy.checkpoint, "backup")
    copy.run("b")
    see(f"{sink}: rows of the table", copy.rows(), "ab")
    shutil.rmtree(copy.checkpoint)
    shutil.move("backup", copy.checkpoint)
    see("   with the older checkpoint b and c are read: number, rows in, rows out", copy.run("c"), [(1, rows_in, rows_out)])
    see("   rows of the table", copy.rows(), "ab")
    see("   and after the next one, of d", (copy.run("d")[-1][0], copy.rows()), (2, "abd"))

copy = Copy("iceberg", "expired")
copy.run("a")
copy.run("b")
see("iceberg, the second micro-batch is repeated", (copy.repeat(1)[0][0], copy.rows()), (1, "ab"))
spark.sql(f"INSERT INTO {copy.table} VALUES ('x')")
spark.sql("CALL iceberg.system.expire_snapshots(table => 'tables.expired', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)")
see("   and again, when its snapshot has expired", (copy.repeat(1)[0][0], copy.rows()), (1, "abbx"))
copy = Copy("delta", "vacuumed")
copy.run("a")
copy.run("b")
spark.createDataFrame([("x",)], "value STRING").write.format("delta").mode("append").save(copy.path)
spark.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
spark.sql(f"VACUUM delta.`{copy.path}` RETAIN 0 HOURS")
see("delta, the second micro-batch is repeated after VACUUM", (copy.repeat(1)[0][0], copy.rows()), (1, "abx"))
PYTHON
quietly python older_checkpoint.py
