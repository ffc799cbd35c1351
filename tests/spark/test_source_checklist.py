"""Cases of Spark's own Kafka suites that need a query; tests/unit/spark_eos/source/test_checklist.py lists all."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from tests.support.spark_eos.sink_query import end, run_each
from tests.support.spark_eos.source_data import create_topic, delete_records, delete_topic, send_plain
from tests.support.spark_eos.source_query import offsets_in
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "checkpoint"


def stream(spark: SparkSession, address: str, **options: str) -> DataFrame:
    source = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", address)
    return source.options(**{"startingOffsets": "earliest"} | options).load()


def run(frame: DataFrame, checkpoint: Path) -> tuple[list[list[str]], list[Any]]:
    """Run until everything is read; return the values of each micro-batch and the progress."""
    seen: list[list[str]] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        seen.append(sorted(row[0] for row in rows.selectExpr("cast(value as string)").collect()))

    return seen, list(run_each(frame, keep, checkpoint).recentProgress)


@pytest.mark.spark
def test_watermark_on_the_timestamp_works(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    topic = create_topic(kafka_address)
    for second in (1, 2, 12, 60):
        send_plain(kafka_address, topic, ["x"], timestamp=1_600_000_000_000 + 1_000 * second)
    counted = (
        stream(spark, kafka_address, subscribe=topic).withWatermark("timestamp", "5 seconds")
        .groupBy(window("timestamp", "10 seconds")).count()
    )  # fmt: skip
    writer = counted.writeStream.format("memory").queryName("watermarked").outputMode("append")
    end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
    rows = spark.sql("select unix_seconds(window.start) % 100 as start, count from watermarked order by 1")
    # The last window is still open.
    assert_df_equality(rows, spark.createDataFrame([(0, 2), (10, 1)], rows.schema))


@pytest.mark.spark
def test_dataframe_used_twice_yields_its_rows_twice(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    frame = stream(spark, kafka_address, subscribe=topic)
    seen, progress = run(frame.union(frame), checkpoint)
    assert seen == [sorted("abcd" * 2)]
    offsets = (checkpoint / "offsets" / "0").read_text().splitlines()[2:]
    assert {each: offsets_in(json.loads(each)) for each in offsets} == {offsets[0]: {topic: {"0": 4}}}
    assert sum(each.numInputRows for each in progress) == 8


@pytest.mark.spark
def test_two_sources_with_one_idle_make_progress(spark: SparkSession, kafka_address: str, checkpoint: Path) -> None:
    one, other = create_topic(kafka_address), create_topic(kafka_address)
    limit = {"maxOffsetsPerTrigger": "1"}

    def both() -> DataFrame:
        first = stream(spark, kafka_address, subscribe=one, **limit)
        return first.union(stream(spark, kafka_address, subscribe=other, **limit))

    send_plain(kafka_address, one, "ab")
    assert run(both(), checkpoint)[0] == [["a"], ["b"]]
    send_plain(kafka_address, other, "c")
    assert run(both(), checkpoint)[0] == [["c"]]


@pytest.mark.spark
def test_topic_deleted_while_the_query_runs_is_reported(
    spark: SparkSession, kafka_address: str, checkpoint: Path
) -> None:
    family = f"family-{uuid.uuid4().hex[:8]}"
    kept, deleted = (create_topic(kafka_address, name=f"{family}-{number}") for number in range(2))
    seen: list[str] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        seen.extend(row[0] for row in rows.selectExpr("cast(value as string)").collect())

    frame = stream(spark, kafka_address, subscribePattern=f"{family}-.*", failOnDataLoss="false")
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    try:
        for topic in (kept, deleted):
            send_plain(kafka_address, topic, ["before"])
        wait_until(lambda: seen == ["before"] * 2 or query.exception(), "both are read")
        delete_topic(kafka_address, deleted)
        send_plain(kafka_address, kept, ["after"])
        wait_until(lambda: "after" in seen or query.exception(), "the topic that is left is read")
    finally:
        query.stop()
    assert query.exception() is None
    assert not query.isActive
    assert sorted(seen) == ["after", "before", "before"]


@pytest.mark.spark
def test_retention_between_planning_and_reading_is_reported(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    source = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = source.option("subscribe", topic).load()
    delete_records(kafka_address, topic, 2)
    expected = spark.createDataFrame([(b"c",), (b"d",)], "value binary")
    assert_df_equality(frame.select("value"), expected, ignore_row_order=True)
