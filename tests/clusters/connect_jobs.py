"""The client of Spark Connect: `connect_jobs.py KIND SERVER ADDRESS FOLDER`; it imports PySpark's client only."""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

IN, COPIED, BY_FUNCTION, ONCE = "lines", "copied", "by-function", "once"
ROWS = 100
MICRO_BATCHES = 3


def everything(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Run a named batch job twice, a read, a stream, and a stream with foreachBatch that runs a micro-batch again."""
    for _ in range(2):
        _batch(spark, kafka).option("jobId", "load").save()
    read = spark.read.format("eos-kafka").options(**kafka).option("subscribe", ONCE).load()
    assert read.selectExpr("cast(value as string)").distinct().count() == read.count() == ROWS
    stream = _lines(spark, kafka).writeStream.format("eos-kafka").options(**kafka).option("topic", COPIED)
    _run(spark, stream, folder / "stream")

    def write(rows: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            rows.select("key", "value").write.format("eos-kafka").mode("append").options(**kafka).option(
                "topic", BY_FUNCTION
            ).option("jobId", f"copy-{batch_id}-{BY_FUNCTION}").save()

    _run(spark, _lines(spark, kafka).writeStream.foreachBatch(write), folder / "function")


def unnamed_write(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Write in foreachBatch without a jobId."""

    def write(rows: DataFrame, _: int) -> None:
        rows.select("key", "value").write.format("eos-kafka").mode("append").options(**kafka).option(
            "topic", BY_FUNCTION
        ).save()

    _run(spark, _lines(spark, kafka).writeStream.foreachBatch(write), folder / "unnamed")


def in_client_session(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Write in foreachBatch without a jobId, where Spark 4.3 runs the function in the client's session as before."""
    spark.conf.set("spark.sql.connect.streaming.foreachBatch.useClonedSession", "false")
    unnamed_write(spark, kafka, folder / "client-session")


def by_sink_function(spark: SparkSession, kafka: dict[str, str], folder: Path) -> None:
    """Pass a function that calls the package, which only the server has."""

    def write(rows: DataFrame, batch_id: int) -> None:
        import spark_eos

        for _ in range(2):
            spark_eos.write(
                rows.select("key", "value"), topic=BY_FUNCTION, jobId=f"sink-{batch_id}-{BY_FUNCTION}", **kafka
            )

    _run(spark, _lines(spark, kafka).writeStream.foreachBatch(write), folder / "sink")


def checkpointed(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Write a batch job of a frame that the server keeps: it is not taken for a micro-batch."""
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value").localCheckpoint()
    rows.write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE).save()


def wrong_option(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Write with an option that the sink refuses."""
    _batch(spark, kafka).option("transactionTimeout", "never").save()


def no_broker(spark: SparkSession, kafka: dict[str, str], _: Path) -> None:
    """Write to an address where no broker is."""
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "3000"}
    _batch(spark, kafka | nowhere).save()


def _batch(spark: SparkSession, kafka: dict[str, str]) -> "object":
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
    return rows.write.format("eos-kafka").mode("append").options(**kafka).option("topic", ONCE)


def _lines(spark: SparkSession, kafka: dict[str, str]) -> DataFrame:
    stream = spark.readStream.format("eos-kafka").options(**kafka).option("subscribe", IN)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200)
    return stream.load().select("key", "value")


def _run(spark: SparkSession, stream: "object", checkpoint: Path) -> None:
    """Run a stream until it has read all lines; before Spark 4.2 a run ends after one micro-batch."""
    is_older = tuple(map(int, spark.version.split(".")[:2])) < (4, 2)
    for _ in range(MICRO_BATCHES if is_older else 1):
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()


JOBS = {
    each.__name__: each
    for each in (
        everything,
        unnamed_write,
        in_client_session,
        by_sink_function,
        checkpointed,
        wrong_option,
        no_broker,
    )
}


def main() -> None:
    """Run one job, and print the error that reaches the client."""
    kind, server, address, folder = sys.argv[1:]
    spark = SparkSession.builder.remote(server).create()
    try:
        JOBS[kind](spark, {"kafka.bootstrap.servers": address}, Path(folder))
    except Exception as problem:
        print(f"{type(problem).__name__}: {problem}", flush=True)
        sys.exit(3)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
