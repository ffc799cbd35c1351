"""Filters of a batch query: what they leave to be read, and that nothing else is fetched."""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from broker_core.types import TopicPartition
from spark_eos.client import fetch
from spark_eos.source.pushdown import narrowing
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import FilteringBatchReader, RangePartition
from tests.support.spark_eos.source_data import create_topic, send
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NOON_MS = 1_600_000_000_000
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)


def moment(timestamp_ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(timestamp_ms / 1_000, tz=datetime.UTC)


@pytest.mark.parametrize(("wanted", "kept"), [
    (EqualTo(TOPIC, "b1"), "b1-0 b1-1"),
    (EqualNullSafe(TOPIC, "b1"), "b1-0 b1-1"),
    (In(TOPIC, ("a1", "b1", "c1")), "a1-0 b1-0 b1-1"),
    (StringStartsWith(TOPIC, "a"), "a1-0"),
    (StringEndsWith(TOPIC, "1"), "a1-0 b1-0 b1-1"),
    (StringContains(TOPIC, "b"), "b1-0 b1-1"),
    (GreaterThan(TOPIC, "a1"), "b1-0 b1-1"),
    (EqualTo(PARTITION, 1), "b1-1"),
    (GreaterThan(PARTITION, 0), "b1-1"),
    (GreaterThanOrEqual(PARTITION, 1), "b1-1"),
    (LessThan(PARTITION, 1), "a1-0 b1-0"),
    (LessThanOrEqual(PARTITION, 0), "a1-0 b1-0"),
    (In(PARTITION, (1, 7)), "b1-1"),
    (Not(EqualTo(TOPIC, "b1")), "a1-0"),
    (Not(In(PARTITION, (1,))), "a1-0 b1-0"),
    # Nothing is said about where rows are, so everything stays.
    (EqualTo(TOPIC, None), "a1-0 b1-0 b1-1"),
    (Not(EqualTo(OFFSET, 1)), "a1-0 b1-0 b1-1"),
    (IsNotNull(TOPIC), "a1-0 b1-0 b1-1"),
    (EqualTo(("key",), b"k"), "a1-0 b1-0 b1-1"),
    (EqualTo(("value", "topic"), "b1"), "a1-0 b1-0 b1-1"),
])  # fmt: skip
def test_partitions_that_filters_keep(wanted: Filter, kept: str) -> None:
    everything = [TopicPartition("a1", 0), TopicPartition("b1", 0), TopicPartition("b1", 1)]
    found = narrowing([wanted])
    assert [str(tp) for tp in everything if found.keeps(tp)] == kept.split()
    assert found.narrowed(3, 9) == (3, 9)


@pytest.mark.parametrize(("wanted", "left"), [
    (EqualTo(OFFSET, 5), (5, 6)),
    (EqualNullSafe(OFFSET, 5), (5, 6)),
    (GreaterThan(OFFSET, 5), (6, 9)),
    (GreaterThanOrEqual(OFFSET, 5), (5, 9)),
    (LessThan(OFFSET, 5), (3, 5)),
    (LessThanOrEqual(OFFSET, 5), (3, 6)),
    (In(OFFSET, (7, 5)), (5, 8)),
    # Wider than the range, or not understood: it stays as it was.
    (GreaterThan(OFFSET, -5), (3, 9)),
    (LessThan(OFFSET, 100), (3, 9)),
    (EqualTo(OFFSET, None), (3, 9)),
    (In(OFFSET, (5, None)), (3, 9)),
    (In(OFFSET, ()), (3, 9)),
    (Not(GreaterThan(OFFSET, 5)), (3, 9)),
    (GreaterThan(PARTITION, 5), (3, 9)),
])  # fmt: skip
def test_offsets_that_filters_leave(wanted: Filter, left: tuple[int, int]) -> None:
    assert narrowing([wanted]).narrowed(3, 9) == left


@pytest.mark.parametrize(("wanted", "since_ms"), [
    (EqualTo(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (EqualNullSafe(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (GreaterThan(TIMESTAMP, moment(NOON_MS + 0.5)), NOON_MS),
    (GreaterThanOrEqual(TIMESTAMP, moment(NOON_MS)), NOON_MS),
    (In(TIMESTAMP, (moment(NOON_MS + 1), moment(NOON_MS))), NOON_MS),
    (GreaterThan(TIMESTAMP, moment(0)), 0),
    (GreaterThan(TIMESTAMP, moment(-5)), None),
    # A later record can be older, so nothing bounds from above; a time without a zone could mean any of many.
    (LessThan(TIMESTAMP, moment(NOON_MS)), None),
    (LessThanOrEqual(TIMESTAMP, moment(NOON_MS)), None),
    (GreaterThan(TIMESTAMP, moment(NOON_MS).replace(tzinfo=None)), None),
    (EqualTo(TIMESTAMP, None), None),
    (In(TIMESTAMP, ()), None),
    (Not(GreaterThan(TIMESTAMP, moment(NOON_MS))), None),
])  # fmt: skip
def test_times_that_filters_ask_for(wanted: Filter, since_ms: int | None) -> None:
    assert narrowing([wanted]).since_ms == since_ms


def test_several_filters_all_hold() -> None:
    found = narrowing([
        GreaterThan(OFFSET, 2), GreaterThan(OFFSET, 4), LessThan(OFFSET, 9), LessThan(OFFSET, 8),
        GreaterThan(TIMESTAMP, moment(NOON_MS)), GreaterThan(TIMESTAMP, moment(NOON_MS + 7)), EqualTo(PARTITION, 1),
        EqualTo(TOPIC, "t"),
    ])  # fmt: skip
    assert found.narrowed(0, 100) == (5, 8)
    assert found.since_ms == NOON_MS + 7
    assert [found.keeps(tp) for tp in (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 1))] == [
        True, False, False,
    ]  # fmt: skip


# What the filters spare, on a real broker.

RECORDS = 200
VALUE = b"v" * 1_000


@pytest.fixture(scope="module")
def topics(kafka_address: str) -> tuple[str, str]:
    """Give two topics of two partitions with 200 kB in each, a record each second from noon, in small batches."""
    made = create_topic(kafka_address, 2), create_topic(kafka_address, 2)
    producer = Producer(
        {
            "bootstrap.servers": kafka_address,
            "batch.num.messages": 10,
            "linger.ms": 5,
            # Batches that are sent again must not change places.
            "enable.idempotence": True,
        }
    )
    for topic in made:
        for partition in (0, 1):
            for number in range(RECORDS):
                producer.produce(topic, VALUE, partition=partition, timestamp=NOON_MS + number * 1_000)
    assert producer.flush(60) == 0
    return made


@pytest.fixture
def fetched_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Count the bytes of records that fetches bring."""
    count = 0
    original = fetch.read_chunk

    def counted(*answer: Any) -> fetch.FetchedChunk:
        nonlocal count
        chunk = original(*answer)
        count += len(chunk.data)
        return chunk

    monkeypatch.setattr(fetch, "read_chunk", counted)
    return lambda: count


def rows_and_ranges(options: Mapping[str, str], filters: list[Filter]) -> tuple[int, list[str]]:
    reader = FilteringBatchReader(options, source_schema(include_headers=False))
    assert reader.pushFilters(filters) == filters, "Spark has to evaluate every filter again"
    planned = reader.partitions()
    rows = sum(batch.num_rows for each in planned for batch in reader.read(each))
    return rows, [str(each.piece) for each in planned if isinstance(each, RangePartition)]


@pytest.mark.parametrize(("filters", "ranges", "share"), [
    ([], ["{0}-0 [0, 200)", "{0}-1 [0, 200)", "{1}-0 [0, 200)", "{1}-1 [0, 200)"], 1.0),
    ([EqualTo(TOPIC, "{0}")], ["{0}-0 [0, 200)", "{0}-1 [0, 200)"], 0.5),
    ([EqualTo(TOPIC, "{1}"), EqualTo(PARTITION, 1)], ["{1}-1 [0, 200)"], 0.25),
    ([GreaterThanOrEqual(OFFSET, 150), EqualTo(TOPIC, "{0}"), EqualTo(PARTITION, 0)], ["{0}-0 [150, 200)"], 0.07),
    ([GreaterThan(TIMESTAMP, moment(NOON_MS + 180_000))],
     ["{0}-0 [180, 200)", "{0}-1 [180, 200)", "{1}-0 [180, 200)", "{1}-1 [180, 200)"], 0.12),
    ([GreaterThan(TIMESTAMP, moment(NOON_MS + 10**9))], [], 0.0),
    ([EqualTo(TOPIC, "no such topic")], [], 0.0),
    ([EqualTo(OFFSET, 10**9)], [], 0.0),
])  # fmt: skip
def test_filters_spare_bytes(
    kafka_address: str, topics: tuple[str, str], fetched_bytes: Callable[[], int], filters: list[Filter],
    ranges: list[str], share: float,
) -> None:  # fmt: skip
    named = [
        type(each)(each.attribute, each.value.format(*topics)) if getattr(each, "attribute", ()) == TOPIC else each
        for each in filters
    ]
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": ",".join(topics)}
    rows, planned = rows_and_ranges(options, named)
    assert planned == sorted(each.format(*topics) for each in ranges)
    assert rows == sum(int(end) - int(start) for start, end in re.findall(r"\[(\d+), (\d+)\)", " ".join(planned)))
    # A range ends within what one answer brings, which is 4 MiB at most: the rest of a log is fetched and cut off.
    assert fetched_bytes() <= share * 4 * RECORDS * (len(VALUE) + 100) + (20 * len(VALUE) if share else 0)


# In Spark, which offers filters only where its own setting and ours say so.


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
def test_filters_reach_the_plan_where_both_allow_it(
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
def test_the_same_rows_with_and_without(spark: SparkSession, kafka_address: str) -> None:
    """Times that go back and forth, as producers may write them; filters that are not offered or not understood."""
    topic = create_topic(kafka_address, 2)
    producer = Producer({"bootstrap.servers": kafka_address, "batch.num.messages": 3})
    for number, second in enumerate([5, 1, 9, 2, 7, 3, 8, 0, 6, 4]):
        send(producer, topic, [f"v{number}"], partition=number % 2, timestamp=NOON_MS + second * 1_000)
    conditions = [
        f"timestamp > timestamp_millis({NOON_MS + 5_000})", f"timestamp = timestamp_millis({NOON_MS + 2_000})",
        f"timestamp <= timestamp_millis({NOON_MS + 2_000})", "offset != 2", "partition <> 0 and offset > 1",
        "partition = 0 or offset = 1", "topic = 'other'", "partition is null",
    ]  # fmt: skip
    for condition, count in zip(conditions, [4, 1, 3, 8, 3, 6, 0, 0], strict=True):
        with pushdown(spark, True):
            pushed, unpushed = (load(spark, kafka_address, topic, option).where(condition) for option in (True, False))
            assert_df_equality(pushed, unpushed, ignore_row_order=True)
            assert pushed.count() == count, condition


@pytest.mark.spark
def test_one_frame_used_twice_is_safe_unless_asked_otherwise(
    spark: SparkSession, kafka_address: str, topics: tuple[str, str]
) -> None:
    """Spark 4.3 keeps one plan for each load(): with pushdown, the second filter's plan serves the first as well.

    When the last assertion fails, Spark has mended this, and `filterPushdown` can be on by default.
    """
    counts = {}
    with pushdown(spark, True):
        for option in (False, True):
            frame = load(spark, kafka_address, topics[0], option)
            counts[option] = frame.where("partition = 0").union(frame.where("partition = 1")).count()
    assert counts[False] == 2 * RECORDS
    assert counts[True] == RECORDS
