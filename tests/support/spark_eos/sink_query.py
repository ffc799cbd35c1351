"""The streaming query of the sink's tests, which reads text files, one for each micro-batch, until all are written."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def lines_of(spark: SparkSession, folder: str) -> DataFrame:
    """Read text files as keyed rows in two tasks, always the same rows in the same task."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder)
    return lines.repartition(2, "value").selectExpr("value AS key", "value")


def start(frame: DataFrame, checkpoint: str, options: Mapping[str, str]) -> StreamingQuery:
    """Start a query that writes the available input and ends."""
    writer = frame.writeStream.format("eos-kafka").option("checkpointLocation", checkpoint)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.trigger(availableNow=True).start()
