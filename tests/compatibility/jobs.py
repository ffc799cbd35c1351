"""The jobs that each version of PySpark runs: `python -m tests.compatibility.jobs KIND ADDRESS FOLDER`.

This module runs in the environment of the version that is tried. It imports PySpark and `spark_eos` only. `data-source`
uses the format `eos-kafka`, `function` the functions `spark_eos.write` and `spark_eos.foreach_batch_sink`.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

import spark_eos

IN, OUT, ONCE = "lines", "copied", "once"


def stream_by_data_source(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Copy one topic to another, 50 offsets a micro-batch, until the process is killed."""
    lines = (
        spark.readStream.format("eos-kafka")
        .options(**kafka)
        .option("subscribe", IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50)
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
    """Write the same rows twice under one name, and read them."""
    for _ in range(2):
        _rows(spark).write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE).option(
            "jobId", "load"
        ).save()
    read = spark.read.format("eos-kafka").options(**kafka).option("subscribe", ONCE).load()
    assert read.selectExpr("cast(value as string)").distinct().count() == read.count() == 100


def batch_by_function(spark: SparkSession, kafka: dict[str, str], _folder: Path) -> None:
    """Write the same rows twice under one name."""
    for _ in range(2):
        spark_eos.write(_rows(spark), topic=ONCE, jobId="load", **kafka)


def _rows(spark: SparkSession) -> DataFrame:
    return spark.range(100).selectExpr("cast(id as string) as value")


JOBS: dict[str, Callable[[SparkSession, dict[str, str], Path], None]] = {
    "stream by data source": stream_by_data_source,
    "stream by function": stream_by_function,
    "batch by data source": batch_by_data_source,
    "batch by function": batch_by_function,
}


def end_with_parent() -> None:
    """End this process when its parent closes its standard input."""
    sys.stdin.read()
    import os

    os._exit(1)


def main() -> None:
    """Run one job."""
    kind, address, folder = sys.argv[1:]
    threading.Thread(target=end_with_parent, daemon=True).start()
    print("pyspark", pyspark.__version__, flush=True)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    JOBS[kind](spark, {"kafka.bootstrap.servers": address}, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
