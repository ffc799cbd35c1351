#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, local sessions, and a query that sums by name, with Spark's default state store. Each row
# counts twice, which is a mistake. It is corrected, and the query goes over some micro-batches again. Then its driver is started
# once more. Two ways lead there. The state store's maintenance runs each second here, and each minute by default.
#
# Seen: 1. The query is taken back to its micro-batch 4: the files of later ones are removed from offsets/ and commits/. The corrected
#          query gives the right sums, until its next start. From then on some names have the sums of the mistaken run.
#       2. Nothing is removed: the sink waits longer than the maintenance's interval at the end of a micro-batch and then fails, the
#          code is corrected, and the micro-batch runs again. After the next start the sums are those of the failed try.
#       3. If the files of newer versions are removed from state/ as well, the sums stay right.
#       4. With RocksDB and spark.sql.streaming.stateStore.checkpointFormatVersion=2 the sums stay right after 1.
#
# Surprising, because the micro-batches that ran again wrote their state and showed it. A snapshot of the earlier run stays beside
# it under the same version number, and a start takes the newest snapshot of a version; names without a row since then keep its sums.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >sums.py <<'PYTHON'
import glob
import os

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from seen import see, wait_for
from spark_session import Source, session

STORE = "spark.sql.streaming.stateStore"


class Numbers(DataSourceStreamReader):
    """Reads a number in each micro-batch."""

    def __init__(self, end):
        self.end = end

    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self, start, limit):
        return {"n": min(start["n"] + 1, self.end)}

    def partitions(self, start, end):
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition):
        return ((n,) for n in range(*partition.value))


class Counting(Source):
    def streamReader(self, schema):
        return Numbers(int(self.options["end"]))


def snapshots(checkpoint):
    return glob.glob(f"{checkpoint}/state/0/0/*.snapshot") + glob.glob(f"{checkpoint}/state/0/0/*.zip")


def run(checkpoint, end, amount, fails=False):
    """Run the query up to the number `end`, each of which counts as the amount, and return the last sum of each name that it gives."""
    sums = {}

    def keep(batch, number):
        sums.update({row.name: row.total for row in batch.collect()})
        if fails and number == end - 1:
            wait_for(lambda: snapshots(checkpoint))
            raise ValueError("the sink fails")

    rows = spark.readStream.format("source").option("end", end).load()
    # The numbers 0 to 9 and 13 are of a, 10 and 14 of b, 11 and 12 of c.
    name = "CASE WHEN n < 10 OR n = 13 THEN 'a' WHEN n IN (10, 14) THEN 'b' ELSE 'c' END AS name"
    totals = rows.selectExpr(name, f"{amount} AS amount").groupBy("name").agg({"amount": "sum"}).withColumnRenamed("sum(amount)", "total")
    query = totals.writeStream.outputMode("update").foreachBatch(keep).option("checkpointLocation", checkpoint).start()
    wait_for(lambda: os.path.exists(f"{checkpoint}/commits/{end - 1}") or not query.isActive)
    wait_for(lambda: snapshots(checkpoint) or not query.isActive)
    query.stop()
    return sums


def remove(paths, last):
    """Remove the files of the checkpoint that have a higher number, with their checksums."""
    for path in glob.glob(paths) + glob.glob(os.path.join(os.path.dirname(paths), ".*")):
        number = os.path.basename(path).lstrip(".").split(".")[0]
        if number.isdigit() and int(number) > last:
            os.remove(path)


def take_back(checkpoint, last):
    """Remove what says that the micro-batches behind this one were planned and done."""
    remove(f"{checkpoint}/offsets/*", last)
    remove(f"{checkpoint}/commits/*", last)


def look(name, after_take_back, after_failure=None):
    """Show what a query of each way gives after its correction, and one row of a and one of b after its next start."""
    checkpoint = os.path.abspath(f"{name} taken back")
    see(f"{name}, the mistaken run", run(checkpoint, 13, 2), {"a": 20, "b": 2, "c": 4})
    take_back(checkpoint, 4)
    see("   taken back and corrected", run(checkpoint, 13, 1), {"a": 15, "b": 1, "c": 2})
    see("   the next start", run(checkpoint, 15, 1), after_take_back)
    if after_failure is None:
        return
    checkpoint = os.path.abspath(f"{name} failed")
    see("   the mistaken run, whose last micro-batch fails", run(checkpoint, 11, 2, fails=True), {"a": 20, "b": 2})
    see("   corrected", run(checkpoint, 13, 1), {"b": 1, "c": 2})
    see("   the next start", run(checkpoint, 15, 1), after_failure)


spark = session("local[1]", {f"{STORE}.maintenanceInterval": "1s"})
spark.dataSource.register(Counting)
look("1. and 2. default store", {"a": 21, "b": 3}, {"a": 21, "b": 3})
checkpoint = os.path.abspath("cleaned")
see("3. default store, the mistaken run", run(checkpoint, 13, 2), {"a": 20, "b": 2, "c": 4})
take_back(checkpoint, 4)
remove(f"{checkpoint}/state/0/0/*", 5)
see("   taken back with its state, and corrected", run(checkpoint, 13, 1), {"a": 15, "b": 1, "c": 2})
see("   the next start", run(checkpoint, 15, 1), {"a": 16, "b": 2})
spark.conf.set(f"{STORE}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
spark.conf.set(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true")
spark.conf.set(f"{STORE}.checkpointFormatVersion", "2")
look("4. RocksDB, version 2", {"a": 16, "b": 2})
PYTHON
quietly python sums.py
