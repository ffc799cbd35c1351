"""Topics read with `spark.read` in a real local Spark."""

import datetime
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tests.support.spark_eos.source_data import abort, commit, create_topic, send, send_plain, transactional_producer
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


def load(spark: SparkSession, address: str, **options: str) -> DataFrame:
    reader = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", address)
    return reader.options(**options).load()


def values(frame: DataFrame) -> list[Any]:
    rows = frame.selectExpr("partition", "offset", "cast(value as string) as text").collect()
    return [row.text for row in sorted(rows, key=lambda row: (row.partition, row.offset))]


def test_schema_matches_spark(spark: SparkSession, kafka_address: str) -> None:
    plain = load(spark, kafka_address, subscribe="any")
    assert plain.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    headers = load(spark, kafka_address, subscribe="any", includeHeaders="true").schema["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in plain.schema)


def test_user_schema_is_refused(spark: SparkSession, kafka_address: str) -> None:
    own = StructType([StructField("line", StringType())])
    reader = spark.read.format("eos-kafka").schema(own).option("kafka.bootstrap.servers", kafka_address)
    with pytest.raises(PySparkException, match="Kafka source has a fixed schema and cannot be set with a custom one"):
        reader.option("subscribe", "any").load().collect()


def test_all_columns_are_read(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    producer = Producer({"bootstrap.servers": kafka_address})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None)]
    producer.produce(topic, b"v", b"k", timestamp=1_600_000_000_123, headers=headers)
    producer.produce(topic, None, b"k2", timestamp=1_600_000_000_124)
    producer.produce(topic, b"v3", None, timestamp=1_600_000_000_125)
    assert producer.flush(30) == 0
    rows = load(spark, kafka_address, subscribe=topic, includeHeaders="true").orderBy("offset")
    moment = datetime.datetime.fromtimestamp(1_600_000_000.123, tz=datetime.UTC)
    millisecond = datetime.timedelta(milliseconds=1)
    expected: list[tuple[Any, ...]] = [
        (b"k", b"v", topic, 0, 0, moment, 0, [("a", b"1"), ("a", None)]),
        (b"k2", None, topic, 0, 1, moment + millisecond, 0, None),
        (None, b"v3", topic, 0, 2, moment + 2 * millisecond, 0, None),
    ]
    assert_df_equality(rows, spark.createDataFrame(expected, rows.schema))


def test_four_edge_cases_of_read_committed(spark: SparkSession, kafka_address: str) -> None:
    """All offsets invisible; the first invisible; the last invisible; a gap in the middle."""
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address)
    abort(producer, topic, ["x0", "x1", "x2"])  # 0..2, marker 3
    commit(producer, topic, ["a", "b"])  # 4..5, marker 6
    abort(producer, topic, ["y"])  # 7, marker 8
    commit(producer, topic, ["c"])  # 9, marker 10

    def between(start: int, end: int) -> list[Any]:
        frame = load(
            spark, kafka_address, subscribe=topic,
            startingOffsets=f'{{"{topic}":{{"0":{start}}}}}', endingOffsets=f'{{"{topic}":{{"0":{end}}}}}',
        )  # fmt: skip
        return values(frame)

    assert between(0, 3) == []
    assert between(2, 6) == ["a", "b"]
    assert between(4, 8) == ["a", "b"]
    assert between(5, 10) == ["b", "c"]
    assert values(load(spark, kafka_address, subscribe=topic)) == ["a", "b", "c"]
    uncommitted = load(spark, kafka_address, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(uncommitted) == ["x0", "x1", "x2", "a", "b", "y", "c"]


def test_open_transaction_blocks_later_records(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    producer = transactional_producer(kafka_address)
    commit(producer, topic, ["a"])
    producer.begin_transaction()
    send(producer, topic, ["b"])
    send_plain(kafka_address, topic, ["c"])
    assert values(load(spark, kafka_address, subscribe=topic)) == ["a"]
    producer.commit_transaction(30)
    assert values(load(spark, kafka_address, subscribe=topic)) == ["a", "b", "c"]


def test_start_and_end_by_offset_and_timestamp(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    for number in range(5):
        send_plain(kafka_address, topic, [number], timestamp=1_000 + number)
    at_ends = load(spark, kafka_address, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":-2}}}}',
                   endingOffsets=f'{{"{topic}":{{"0":-1}}}}')  # fmt: skip
    assert values(at_ends) == ["0", "1", "2", "3", "4"]
    timed = load(spark, kafka_address, subscribe=topic, startingTimestamp="1001", endingTimestamp="1003")
    assert values(timed) == ["1", "2"]
    mixed = load(spark, kafka_address, subscribe=topic, endingOffsets=f'{{"{topic}":{{"0":4}}}}',
                 startingOffsetsByTimestamp=f'{{"{topic}":{{"0":1002}}}}')  # fmt: skip
    assert values(mixed) == ["2", "3"]
    late = load(spark, kafka_address, subscribe=topic, startingTimestamp="9999")
    with pytest.raises(PySparkException, match=f"No offset matched from request of topic-partition {topic}-0"):
        late.collect()


def test_ends_are_resolved_at_the_first_run(spark: SparkSession, kafka_address: str) -> None:
    """Spark's Python API requests a DataFrame's partitions once; its own Kafka source gets a request at every run."""
    topic = create_topic(kafka_address)
    send_plain(kafka_address, topic, ["a"])
    frame = load(spark, kafka_address, subscribe=topic)
    send_plain(kafka_address, topic, ["b"])
    assert frame.count() == 2
    send_plain(kafka_address, topic, ["c"])
    assert frame.union(frame).count() == 4
    assert load(spark, kafka_address, subscribe=topic).count() == 3


def test_min_partitions_creates_more_tasks_than_partitions(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=3)
    for partition in range(3):
        send_plain(kafka_address, topic, range(20), partition=partition)
    frame = load(spark, kafka_address, subscribe=topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert frame.count() == 60
    small = load(spark, kafka_address, subscribe=topic, maxRecordsPerPartition="7")
    assert small.rdd.getNumPartitions() == 9
    assert small.distinct().count() == 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "Only one of the following options"),
        ({"subscribe": "no-such-topic"}, "Unknown topic or partition: no-such-topic"),
    ],
)
def test_invalid_input_is_reported(
    spark: SparkSession, kafka_address: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        load(spark, kafka_address, **options).collect()


def test_unreachable_server_is_reported_within_the_timeout(spark: SparkSession) -> None:
    options = {"subscribe": "t", "kafka.default.api.timeout.ms": "2000"}
    with pytest.raises(PySparkException, match=r"No Kafka broker could be reached.*127\.0\.0\.1:1"):
        load(spark, "127.0.0.1:1", **options).collect()
