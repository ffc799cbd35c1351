"""Queries of the tests in Spark that end when their input is read, and text files as input."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 240


def lines_of(spark: SparkSession, folder: str) -> DataFrame:
    """Read text files as keyed rows in two tasks, one file in each micro-batch, always the same rows in a task."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder)
    return lines.repartition(2, "value").selectExpr("value AS key", "value")


def start(frame: DataFrame, checkpoint: str, options: Mapping[str, str]) -> StreamingQuery:
    """Start a query of the sink that writes the available input and ends."""
    writer = frame.writeStream.format("eos-kafka").options(**options).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def end(query: StreamingQuery) -> StreamingQuery:
    """Wait until a query has ended, raise its error, and return it."""
    assert query.awaitTermination(DEADLINE_S), "the query did not end"
    return query


def run_each(frame: DataFrame, function: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Call a function with each micro-batch until the available input is read, and return the query."""
    writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    return end(writer.trigger(availableNow=True).start())
