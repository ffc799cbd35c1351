"""A query that starts at the end of its topics reads every later row, wherever it crashes first."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]


def mixed_start(topic: str) -> str:
    return f'{{"{topic}":{{"0":0,"1":-1}}}}'


@pytest.mark.spark
def test_available_now_reads_the_backlog_after_a_pinned_start(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address, partitions=2)
    send_plain(kafka_address, topic, ["a", "b"])
    seen: list[int] = []
    source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = source.option("subscribe", topic).option("startingOffsets", mixed_start(topic)).load()
    writer = frame.writeStream.foreachBatch(lambda rows, batch_id: seen.append(rows.count()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert seen == [0, 2]


@pytest.mark.spark
def test_query_that_fails_in_its_first_micro_batch_misses_nothing(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["before"])
    seen: list[str] = []

    def die(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("killed")

    def keep(frame: DataFrame, batch_id: int) -> None:
        seen.extend(bytes(row.value).decode() for row in frame.orderBy("offset").collect())

    for number, work in enumerate((die, keep)):
        source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address)
        writer = source.option("subscribe", topic).load().writeStream.foreachBatch(work)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        if work is die:
            with pytest.raises(PySparkException):
                query.awaitTermination(120)
        else:
            assert query.awaitTermination(120)
        send_plain(kafka_address, topic, [f"after {number}"])
    assert seen == ["after 0"]
