"""The jobs that each version of PySpark runs: `python -m tests.compatibility.jobs ADDRESS FOLDER JOB...`.

This module runs in the environment of the version that is tried. It imports PySpark and `spark_eos` only. "by data
source" uses the format `eos-kafka`, "by functions" uses `spark_eos.write` and `spark_eos.foreach_batch_sink`.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

import spark_eos

IN, OUT, ONCE = "lines", "copied", "once"
LINES, ROWS = 1_000, 100
# A job is over before a compiler pays off.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
DATA_SOURCE, FUNCTIONS = "data source", "functions"


def stream_by_data_source(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Copy one topic to another, 100 offsets a micro-batch, until the process is killed."""
    lines = (
        spark.readStream.format("eos-kafka")
        .options(**kafka)
        .option("subscribe", IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
    )
    query = lines.selectExpr("key", "value").writeStream.format("eos-kafka").options(**kafka).option("topic", OUT)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def stream_by_function(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Write the lines of files, one file a micro-batch, until the process is killed."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "files"))
    query = lines.writeStream.foreachBatch(spark_eos.foreach_batch_sink(topic=OUT, **kafka))
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def batch_by_data_source(spark: SparkSession, kafka: dict[str, str], _folder: Path) -> None:
    """Write the same rows twice under one name."""
    for _ in range(2):
        _rows(spark).write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE).option(
            "jobId", "load"
        ).save()


def batch_by_function(spark: SparkSession, kafka: dict[str, str], _folder: Path) -> None:
    """Write the same rows twice under one name."""
    for _ in range(2):
        spark_eos.write(_rows(spark), topic=ONCE, jobId="load", **kafka)


def source(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Read what the killed streams have written, in a batch and in a stream that ends."""
    read = spark.read.format("eos-kafka").options(**kafka).option("subscribe", OUT)
    _check(read.load())
    _check(read.option("startingTimestamp", 0).load())
    stream = spark.readStream.format("eos-kafka").options(**kafka).option("subscribe", OUT)
    lines = stream.option("startingOffsets", "earliest").load().selectExpr("value")
    to_files = lines.writeStream.format("parquet").option("path", str(folder / "read")).trigger(availableNow=True)
    to_files.option("checkpointLocation", str(folder / "read-checkpoint")).start().awaitTermination()
    _check(spark.read.parquet(str(folder / "read")))


def _check(lines: DataFrame) -> None:
    values = lines.selectExpr("cast(value as string) as value")
    assert (values.count(), values.distinct().count()) == (LINES, LINES)


def _rows(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr("cast(id as string) as value")


JOBS: dict[str, Callable[[SparkSession, dict[str, str], Path], None]] = {
    f"stream by {DATA_SOURCE}": stream_by_data_source,
    f"stream by {FUNCTIONS}": stream_by_function,
    f"batch by {DATA_SOURCE}": batch_by_data_source,
    f"batch by {FUNCTIONS}": batch_by_function,
    "source": source,
}


def end_with_parent() -> None:
    """End this process when its parent closes its standard input."""
    sys.stdin.read()
    import os

    os._exit(1)


def main() -> None:
    """Run jobs, one after the other."""
    address, folder, *jobs = sys.argv[1:]
    threading.Thread(target=end_with_parent, daemon=True).start()
    print("pyspark", pyspark.__version__, flush=True)
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for job in jobs:
        JOBS[job](spark, {"kafka.bootstrap.servers": address}, Path(folder))
        print(f"done: {job}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
