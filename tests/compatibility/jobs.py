"""The jobs that each version of PySpark runs: `python -m tests.compatibility.jobs ADDRESS FOLDER JOB...`.

This module runs in the environment of the version that is tried. It imports PySpark and `spark_eos` only. "by data
source" uses the format `eos-kafka`, "by Spark Connect" does the same as the client of a server that ends with this
process, "by functions" uses `spark_eos.write` and `spark_eos.foreach_batch_sink`, and "by Delta Lake" runs the recipe
of docs/recipes/delta.md.
"""

import atexit
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

import spark_eos

IN, OUT, ONCE = "lines", "copied", "once"
LINES, ROWS = 1_000, 100
# A job is over before a compiler pays off.
MASTER = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
DATA_SOURCE, CONNECT, FUNCTIONS = "data source", "Spark Connect", "functions"
DELTA = "Delta Lake 4.0.1"
DELTA_SETTINGS = {
    "spark.jars.packages": f"io.delta:delta-spark_2.13:{DELTA.rpartition(' ')[2]}",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "delta.md"
SERVER_DEADLINE_S = 120


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


def stream_by_recipe(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Run the recipe of Delta Lake, 100 offsets a micro-batch, until the process is killed."""
    _, _, code = RECIPE.read_text(encoding="utf-8").partition("```python\n")
    code, _, _ = code.partition("```")
    earliest = '.option("startingOffsets", "earliest")'
    for printed, here in {
        "localhost:9092": kafka["kafka.bootstrap.servers"],
        "/data/": f"{folder}/",
        '"orders"': f'"{IN}"',
        '"orders.enriched"': f'"{OUT}"',
        earliest: f'{earliest}.option("maxOffsetsPerTrigger", 100)',
    }.items():
        assert printed in code, f"{RECIPE.name} has no {printed}"
        code = code.replace(printed, here)
    exec(code, {"spark": spark})


def table(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Read the table that the killed recipe has written, and copy it to a topic in a stream that ends."""
    written = f"{folder}/tables/orders"
    _check(spark.read.format("delta").load(written))
    copy = spark.readStream.format("delta").load(written).select("key", "value").writeStream.format("eos-kafka")
    copy = copy.options(**kafka).option("topic", ONCE).option("checkpointLocation", f"{folder}/checkpoints/copy")
    copy.trigger(availableNow=True).start().awaitTermination()


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
    f"stream by {CONNECT}": stream_by_data_source,
    f"stream by {FUNCTIONS}": stream_by_function,
    f"stream by {DELTA}": stream_by_recipe,
    f"table by {DELTA}": table,
    f"batch by {DATA_SOURCE}": batch_by_data_source,
    f"batch by {CONNECT}": batch_by_data_source,
    f"batch by {FUNCTIONS}": batch_by_function,
    "source": source,
}


def end_with_parent() -> None:
    """End this process when its parent closes its standard input."""
    sys.stdin.read()
    os._exit(1)


def session(folder: Path, by: str) -> SparkSession:
    """Make a session, of Spark Connect or with Delta's jar if the way to write needs it."""
    if by == CONNECT:
        return SparkSession.builder.remote(server(folder)).getOrCreate()
    builder = SparkSession.builder.master(MASTER)
    for name, value in (SETTINGS | (DELTA_SETTINGS if by == DELTA else {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def server(folder: Path) -> str:
    """Start a server of Spark Connect in the process group of this program, and return its address."""
    home, log = Path(pyspark.__file__).parent, folder / "server-log"
    command = [str(home / "bin" / "spark-submit"), "--master", MASTER]
    for name, value in (SETTINGS | {"spark.connect.grpc.binding.port": "0", "spark.log.level": "INFO"}).items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with log.open("wb") as output:
        java = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "SPARK_HOME": str(home)})
    # A program that is killed takes it along, and one that ends has to end it.
    atexit.register(java.terminate)
    end = time.monotonic() + SERVER_DEADLINE_S
    while True:
        said = log.read_text(errors="replace")
        if found := re.search(r"Spark Connect server started at: \S*:(\d+)", said):
            return f"sc://127.0.0.1:{found[1]}"
        assert time.monotonic() < end, said[-3000:]
        time.sleep(0.2)


def main() -> None:
    """Run jobs, one after the other."""
    address, folder, *jobs = sys.argv[1:]
    threading.Thread(target=end_with_parent, daemon=True).start()
    print("pyspark", pyspark.__version__, flush=True)
    spark = session(Path(folder), jobs[0].partition(" by ")[2])
    for job in jobs:
        JOBS[job](spark, {"kafka.bootstrap.servers": address}, Path(folder))
        print(f"done: {job}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
