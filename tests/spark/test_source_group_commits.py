"""Progress committed to a consumer group, only for tools that show lag."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_eos.group_offsets import committed, new_group
from tests.support.spark_eos.sink_query import end
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]


@pytest.mark.spark
def test_consumer_group_shows_query_progress(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    topic, group = create_topic(kafka_address, partitions=2), new_group()
    send_plain(kafka_address, topic, ["a", "b", "c"])
    send_plain(kafka_address, topic, ["d"], partition=1)

    def run() -> None:
        source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address).options(
            subscribe=topic, startingOffsets="earliest", commitOffsetsToGroup="true", maxOffsetsPerTrigger="3",
            **{"kafka.group.id": group},
        )  # fmt: skip
        writer = source.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        end(writer.format("noop").trigger(availableNow=True).start())

    run()
    assert committed(kafka_address, group) == {0: 3, 1: 1}
    send_plain(kafka_address, topic, ["e"], partition=1)
    run()
    assert committed(kafka_address, group) == {0: 3, 1: 2}
