"""Filters of a batch query in Spark, which offers them only if its own setting and ours allow it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_eos.source_data import create_topic, send
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.spark_eos.timed_topics import NOON_MS, RECORDS, topics

__all__ = ["failpoints_file", "spark", "topics"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@contextmanager
def pushdown(spark: SparkSession, setting: bool) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, str(setting).lower())
    try:
        yield
    finally:
        spark.conf.unset(PUSHDOWN)


def load(spark: SparkSession, address: str, topics: str, option: bool = True) -> DataFrame:
    reader = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", address)
    return reader.option("subscribe", topics).option("filterPushdown", str(option).lower()).load()


@pytest.mark.spark
@pytest.mark.parametrize(("setting", "option", "tasks"), [(False, True, 4), (True, False, 4), (True, True, 1)])
def test_filters_are_pushed_down_where_supported(
    spark: SparkSession, kafka_address: str, topics: tuple[str, str], setting: bool, option: bool, tasks: int
) -> None:
    query = (
        f"topic = '{topics[1]}' and partition in (1, 5) and offset between 20 and 60 "
        f"and timestamp >= timestamp_millis({NOON_MS + 30_000}) and timestamp < timestamp_millis({NOON_MS + 50_000})"
    )
    with pushdown(spark, setting):
        chosen = load(spark, kafka_address, ",".join(topics), option).where(query)
        assert (chosen.count(), chosen.rdd.getNumPartitions()) == (20, tasks)


@pytest.mark.spark
def test_pushdown_does_not_change_the_rows(spark: SparkSession, kafka_address: str) -> None:
    """Times that go back and forth, as producers may write them; filters that Spark or the source leaves out."""
    topic = create_topic(kafka_address, 2)
    producer = Producer({"bootstrap.servers": kafka_address, "batch.num.messages": 3})
    seconds = [5, 1, 9, 2, 7, 3, 8, 0, 6, 4]
    for number, second in enumerate(seconds):
        send(producer, topic, [f"v{number}"], partition=number % 2, timestamp=NOON_MS + second * 1_000)
    # Of each number, its second: the partition is its rest by two, and the offset its half.
    conditions: dict[str, Callable[[int, int], bool]] = {
        f"timestamp > timestamp_millis({NOON_MS + 5_000})": lambda _, second: second > 5,
        f"timestamp <= timestamp_millis({NOON_MS + 2_000})": lambda _, second: second <= 2,
        "offset != 2": lambda number, _: number // 2 != 2,
        "partition = 0 or offset = 1": lambda number, _: number % 2 == 0 or number // 2 == 1,
        "partition is null": lambda *_: False,
    }
    with pushdown(spark, True):
        for condition, is_kept in conditions.items():
            rows = load(spark, kafka_address, topic).where(condition).selectExpr("CAST(value AS string)").collect()
            kept = [f"v{number}" for number, second in enumerate(seconds) if is_kept(number, second)]
            assert sorted(row.value for row in rows) == kept, condition


@pytest.mark.spark
def test_pushdown_on_a_dataframe_used_twice_is_safe_by_default(
    spark: SparkSession, kafka_address: str, topics: tuple[str, str]
) -> None:
    """Spark 4.3 keeps one plan for each load(): with pushdown, the second filter's plan serves the first as well.

    When the last assertion fails, Spark has fixed this, and `filterPushdown` can be on by default.
    """
    counts = {}
    with pushdown(spark, True):
        for option in (False, True):
            frame = load(spark, kafka_address, topics[0], option)
            counts[option] = frame.where("partition = 0").union(frame.where("partition = 1")).count()
    assert counts[False] == 2 * RECORDS
    assert counts[True] == RECORDS
