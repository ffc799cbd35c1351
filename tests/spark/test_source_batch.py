"""Topics read with `spark.read` in a real local Spark."""

import datetime
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


def load(spark: SparkSession, address: str, **options: str) -> DataFrame:
    reader = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", address)
    return reader.options(**options).load()


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
