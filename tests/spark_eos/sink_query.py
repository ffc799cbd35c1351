"""Run the streaming query of the crash tests in a process of its own, so that it can be killed with its JVM.

Arguments: one JSON object with `input`, `checkpoint` and `options`. The query reads text files, one for each
micro-batch, and ends when all are written.
"""

import json
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark_eos.spark_session import build_session


def lines_of(spark: SparkSession, folder: str) -> DataFrame:
    """Read text files as keyed rows spread over two tasks, always the same rows in the same task."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder)
    return lines.repartition(2, "value").selectExpr("value AS key", "value")


def start(frame: DataFrame, checkpoint: str, options: Mapping[str, str]) -> StreamingQuery:
    """Write what is there, then end."""
    writer = frame.writeStream.format("eos-kafka").option("checkpointLocation", checkpoint)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    spark = build_session("crash")
    start(lines_of(spark, arguments["input"]), arguments["checkpoint"], arguments["options"]).awaitTermination()
    spark.stop()
