"""Two flows into one topic: what is in `lines` and `notes`, in capitals."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
kafka = {"kafka.bootstrap.servers": spark.conf.get("pipeline.bootstrap.servers")}

pipelines.create_sink("shouted", "eos-kafka", {**kafka, "topic": "shouted"})


def in_capitals(topic: str) -> DataFrame:
    """Read a topic from its first record, and change each value."""
    records = spark.readStream.format("eos-kafka").options(**kafka, subscribe=topic, startingOffsets="earliest").load()
    return records.selectExpr("key", "upper(cast(value as string)) as value")


@pipelines.append_flow(target="shouted")
def from_lines() -> DataFrame:
    """Write what is in `lines`."""
    return in_capitals("lines")


@pipelines.append_flow(target="shouted")
def from_notes() -> DataFrame:
    """Write what is in `notes`."""
    return in_capitals("notes")
