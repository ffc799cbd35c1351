"""The application that is submitted: `spark-submit jobs.py KIND ADDRESS FOLDER`.

It runs in the environment of the nodes and imports PySpark and `spark_eos` only.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

IN, COPIED, BY_FUNCTION, ONCE = "lines", "copied", "by-function", "once"
ROWS = 100


def everything(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Run a stream, a stream with foreachBatch, a named batch job twice, and a read."""

    def write(rows: DataFrame, _: int) -> None:
        rows.select("key", "value").write.format("eos-kafka").mode("append").options(**kafka).option(
            "topic", BY_FUNCTION
        ).save()

    for _ in range(2):
        rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) as value")
        rows.write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE).option(
            "jobId", "load"
        ).save()
    lines = copied_stream(spark, kafka)
    for start in (
        lines.writeStream.format("eos-kafka").options(**kafka).option("topic", COPIED),
        lines.writeStream.foreachBatch(write),
    ):
        checkpoint = str(folder / f"checkpoint-{time.time_ns()}")
        query = start.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    read = spark.read.format("eos-kafka").options(**kafka).option("subscribe", ONCE).load()
    assert read.selectExpr("cast(value as string)").distinct().count() == read.count() == ROWS


def by_registration(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Do the same, after the data source was registered by hand."""
    from spark_eos import EosKafkaDataSource

    spark.dataSource.register(EosKafkaDataSource)
    everything(spark, kafka, folder)


def batch(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Write one batch job."""
    rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) as value")
    rows.write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE).save()


def batch_by_function(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Write one batch job by the function."""
    import spark_eos

    rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) as value")
    spark_eos.write(rows, topic=ONCE, **kafka)


def read(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Read a topic."""
    spark.read.format("eos-kafka").options(**kafka).option("subscribe", IN).load().count()


def copy(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Copy a topic until the process is killed, and print how many executors there are when that changes."""
    threading.Thread(target=report_executors, args=(spark,), daemon=True).start()
    query = copied_stream(spark, kafka).writeStream.format("eos-kafka").options(**kafka).option("topic", COPIED)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def copied_stream(spark: SparkSession, kafka: dict[str, str]) -> DataFrame:
    """Return the stream that is copied, with a shuffle: its tasks depend on files of executors."""
    stream = spark.readStream.format("eos-kafka").options(**kafka).option("subscribe", IN)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200)
    return stream.load().selectExpr("key", "value").repartition(4)


def report_executors(spark: SparkSession) -> None:
    """Print the number of executors whenever it changes."""
    last = -1
    while True:
        context = spark.sparkContext._jsc.sc()
        # The driver is in the list.
        count = len(context.statusTracker().getExecutorInfos()) - 1
        if count != last:
            print(f"executors: {count}", flush=True)
            last = count
        time.sleep(0.2)


JOBS: dict[str, Callable[[SparkSession, dict[str, str], Path], None]] = {
    each.__name__: each for each in (everything, by_registration, batch, batch_by_function, read, copy)
}


def main() -> None:
    """Run one job."""
    kind, address, folder = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    JOBS[kind](spark, {"kafka.bootstrap.servers": address}, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
