"""The source beside Spark's own `format("kafka")`: the same rows, micro-batches and errors for the same options.

The two differ in one default: ours reads committed records only, so Spark's own gets the option for that.
"""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark_eos.sink_query import run_each
from tests.support.spark_eos.source_data import (
    DEADLINE_SECONDS,
    abort,
    add_partitions,
    commit,
    create_topic,
    send,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark

OURS, SPARKS = "eos-kafka", "kafka"
NOON_MS = 1_600_000_000_000
ALL = '{{"{a}":{{"0":-2,"1":-2}},"{b}":{{"0":-2}}}}'


@pytest.fixture(scope="module", autouse=True)
def _sparks_own(request: pytest.FixtureRequest) -> None:
    # Of the module, so that what it skips has written no records.
    if not request.config.getoption("--apache"):
        pytest.skip("Spark's own Kafka source needs Maven, so only `make conformance` compares the two.")
    if not request.getfixturevalue("spark").conf.get("spark.jars", ""):
        pytest.skip("Spark's own Kafka source is not available: Maven is missing, or cannot reach its repository.")


@pytest.fixture(scope="module")
def written(kafka_address: str) -> Iterator[dict[str, str]]:
    """Return two topics with all that a reader may meet: nulls, headers, codecs, invisible records, an open end."""
    prefix = f"beside-{uuid.uuid4().hex[:8]}"
    a = create_topic(kafka_address, 2, name=f"{prefix}-a")
    b = create_topic(kafka_address, 1, {"message.timestamp.type": "LogAppendTime"}, name=f"{prefix}-b")
    times = iter(range(NOON_MS, NOON_MS + 10**6, 1_000))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": kafka_address, "compression.type": codec, "linger.ms": 50})
        for key, value in ((b"k", b"v"), (None, b"v" * 300), (b"k", None), (None, None), (b"", b"")):
            for topic, partition in ((a, 0), (a, 1), (b, 0)):
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    timestamp=next(times),
                    headers=[("h", codec.encode()), ("h", None), ("", b"")],
                )
                producer.produce(topic, value, key, partition, timestamp=next(times))
        assert producer.flush(DEADLINE_SECONDS) == 0
    ended = transactional_producer(kafka_address)
    still_open = transactional_producer(kafka_address, **{"transaction.timeout.ms": 900_000})
    abort(ended, a, ["aborted", "aborted too"], timestamp=next(times))
    commit(ended, a, ["committed"], timestamp=next(times))
    abort(ended, b, ["aborted"], timestamp=next(times))
    still_open.begin_transaction()
    send(still_open, a, ["open"], partition=1, timestamp=next(times))
    send_plain(kafka_address, a, ["behind the open one"], partition=1, timestamp=next(times))
    yield {"a": a, "b": b, "prefix": prefix, "address": kafka_address}
    still_open.abort_transaction(DEADLINE_SECONDS)


def filled(options: Mapping[str, str], written: Mapping[str, str]) -> dict[str, str]:
    return {name: value.format(**written) for name, value in options.items()}


def load(spark: SparkSession, kind: str, address: str, options: Mapping[str, str]) -> DataFrame:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", address)
    return reader.option("kafka.isolation.level", "read_committed").options(**options).load()


@pytest.mark.parametrize("options", [
    {"subscribe": "{a},{b}"},
    {"subscribe": "{a},{b}", "includeHeaders": "true"},
    {"subscribe": "{a},{b}", "kafka.isolation.level": "read_uncommitted", "includeHeaders": "true"},
    {"subscribePattern": "{prefix}-[ab]"},
    {"subscribePattern": "{prefix}"},
    {"subscribePattern": "{prefix}$"},
    {"subscribePattern": "^.{{4}}de-|^{prefix}.a"},
    {"assign": '{{"{a}":[1],"{b}":[0]}}'},
    {"subscribe": "{a},{b}", "startingOffsets": '{{"{a}":{{"0":3,"1":-2}},"{b}":{{"0":7}}}}'},
    {"subscribe": "{a},{b}", "startingOffsets": ALL,
     "endingOffsets": '{{"{a}":{{"0":20,"1":-1}},"{b}":{{"0":7}}}}'},
    {"subscribe": "{a}", "startingTimestamp": f"{NOON_MS + 60_000}"},
    {"subscribe": "{a}", "startingTimestamp": f"{NOON_MS + 60_500}", "endingTimestamp": f"{NOON_MS + 100_000}"},
    {"subscribe": "{a}", "startingOffsetsByTimestamp": f'{{{{"{{a}}":{{{{"0":{NOON_MS + 9_000},"1":0}}}}}}}}',
     "endingOffsetsByTimestamp": f'{{{{"{{a}}":{{{{"0":{NOON_MS * 2},"1":{NOON_MS + 70_000}}}}}}}}}'},
    {"subscribe": "{a}", "startingTimestamp": f"{NOON_MS * 2}", "startingOffsetsByTimestampStrategy": "latest"},
    {"subscribe": "{a},{b}", "minPartitions": "7"},
    {"subscribe": "{a},{b}", "maxRecordsPerPartition": "4"},
], ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()))  # fmt: skip
def test_rows_match_spark_kafka_source(spark: SparkSession, written: dict[str, str], options: dict[str, str]) -> None:
    frames = [load(spark, kind, written["address"], filled(options, written)) for kind in (OURS, SPARKS)]
    assert_df_equality(*frames, ignore_row_order=True)
    if "minPartitions" in options:
        assert frames[0].rdd.getNumPartitions() == frames[1].rdd.getNumPartitions()


def refusal(spark: SparkSession, kind: str, address: str, options: Mapping[str, str]) -> str:
    with pytest.raises((PySparkException, Py4JError)) as caught:
        load(spark, kind, address, options).collect()
    return str(caught.value)


@pytest.mark.parametrize(("options", "words"), [
    ({}, "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign"),
    ({"subscribe": "{a}", "subscribePattern": "x.*"}, "Only one of the following options can be specified"),
    ({"subscribe": "{prefix}-missing"}, "unknown"),
    ({"subscribe": "{a}", "startingOffsets": "soon"},
     'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got soon'),
    ({"subscribe": "{a}", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    ({"subscribe": "{b}", "startingOffsets": '{{"{b}":{{"0":-1}}}}'},
     "startingOffsets for {b}-0 can't be latest for batch queries on Kafka"),
    ({"subscribe": "{b}", "endingOffsets": '{{"{b}":{{"0":-2}}}}'},
     "ending offset for {b}-0 can't be earliest for batch queries on Kafka"),
    ({"subscribe": "{a}", "startingOffsets": '{{"{a}":{{"0":0}}}}'}, "{a}-1"),
    ({"subscribe": "{a}", "startingOffsetsByTimestamp": '{{"{a}":{{"0":0}}}}'}, "{a}-1"),
    ({"subscribe": "{a}", "startingTimestamp": f"{NOON_MS * 2}"}, "No offset matched from request"),
    ({"subscribe": "{a}", "startingTimestamp": "noon"}, "Expected a single long value, got noon"),
    ({"subscribe": "{a}", "minPartitions": "0"}, "minPartitions must be positive"),
    ({"subscribe": "{a}", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
    ({"subscribe": "{a}", "kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
    ({"subscribe": "{a}", "kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported"),
    ({"subscribe": " "}, "No topics to subscribe"),
    ({"subscribePattern": ""}, "Pattern to subscribe is empty"),
])  # fmt: skip
def test_refusals_match_spark_kafka_source(
    spark: SparkSession, written: dict[str, str], options: dict[str, str], words: str
) -> None:
    for kind in (OURS, SPARKS):
        said = refusal(spark, kind, written["address"], filled(options, written))
        assert words.format(**written).lower() in said.lower(), kind


def test_time_beyond_sparks_timestamp_is_refused_and_named(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address, 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    latest_ms = (2**63 - 1) // 1_000
    for at_ms in (NOON_MS, latest_ms, NOON_MS * 1_000_000):
        send_plain(kafka_address, topic, ["v"], timestamp=at_ms)
    options = {"subscribe": topic}
    assert "long overflow" in refusal(spark, SPARKS, kafka_address, options)
    assert f"offset 2 of {topic}-0 has the time {NOON_MS * 1_000_000}" in refusal(spark, OURS, kafka_address, options)
    options["endingOffsets"] = f'{{"{topic}":{{"0":2}}}}'
    frames = [load(spark, kind, kafka_address, options) for kind in (OURS, SPARKS)]
    assert_df_equality(*(each.selectExpr("offset", "unix_micros(timestamp) AS us") for each in frames))


# Streams: the same micro-batches, and one checkpoint for both


def micro_batches(
    spark: SparkSession, kind: str, address: str, checkpoint: Path, options: Mapping[str, str]
) -> list[list[tuple[Any, ...]]]:
    """Run until everything is read, and return the rows of each micro-batch."""
    seen: list[list[tuple[Any, ...]]] = []

    def keep(frame: DataFrame, batch_id: int) -> None:
        columns = ("topic", "partition", "offset", "cast(value as string)")
        seen.append(sorted(map(tuple, frame.selectExpr(*columns).collect()), key=repr))

    source = spark.readStream.format(kind).option("kafka.bootstrap.servers", address)
    source = source.option("kafka.isolation.level", "read_committed").options(**options)
    run_each(source.load(), keep, checkpoint)
    return seen


@pytest.mark.parametrize("limits", [
    {}, {"maxOffsetsPerTrigger": "13"}, {"maxOffsetsPerTrigger": "2"},
    {"maxOffsetsPerTrigger": "40", "minPartitions": "5"},
], ids=str)  # fmt: skip
def test_micro_batches_match_spark_kafka_source(
    spark: SparkSession, written: dict[str, str], tmp_path: Path, limits: dict[str, str]
) -> None:
    if limits.get("maxOffsetsPerTrigger") == "2":
        options = {"assign": '{{"{a}":[0,1],"{b}":[0]}}',
                   "startingOffsets": '{{"{a}":{{"0":40,"1":47}},"{b}":{{"0":40}}}}'}  # fmt: skip
    else:
        options = {"subscribe": "{a},{b}", "startingOffsets": "earliest"}
    ours, sparks = (
        micro_batches(spark, kind, written["address"], tmp_path / kind, filled(options, written) | limits)
        for kind in (OURS, SPARKS)
    )
    assert ours == sparks
    assert sum(map(len, ours)) > 10


@pytest.mark.parametrize(("first", "second"), [(SPARKS, OURS), (OURS, SPARKS)])
def test_checkpoint_is_interchangeable_with_spark_kafka_source(
    spark: SparkSession, kafka_address: str, tmp_path: Path, first: str, second: str
) -> None:
    """A query that ran on one format continues with the other where it stopped, including new partitions."""
    topic = create_topic(kafka_address, 2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    send_plain(kafka_address, topic, ["a", "b"])
    assert micro_batches(spark, first, kafka_address, tmp_path, options) == [[(topic, 0, 0, "a"), (topic, 0, 1, "b")]]
    send_plain(kafka_address, topic, ["c"])
    add_partitions(kafka_address, topic, 3)
    send_plain(kafka_address, topic, ["d"], partition=2)
    assert micro_batches(spark, second, kafka_address, tmp_path, options) == [[(topic, 0, 2, "c"), (topic, 2, 0, "d")]]
    send_plain(kafka_address, topic, ["e"], partition=1)
    assert micro_batches(spark, first, kafka_address, tmp_path, options) == [[(topic, 1, 0, "e")]]


def fail_in_micro_batch(
    spark: SparkSession, kind: str, address: str, checkpoint: Path, options: Mapping[str, str]
) -> None:
    """Leave a micro-batch that is planned and not committed."""

    def fail(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("the first deployment")

    source = spark.readStream.format(kind).option("kafka.bootstrap.servers", address)
    source = source.option("kafka.isolation.level", "read_committed").options(**options)
    with pytest.raises(PySparkException, match="the first deployment"):
        run_each(source.load(), fail, checkpoint)


@pytest.mark.parametrize(("first", "second", "by"), [
    (SPARKS, OURS, "subscribe"), (OURS, SPARKS, "subscribePattern"),
])  # fmt: skip
def test_failed_micro_batches_run_again_with_the_other_format(
    spark: SparkSession, kafka_address: str, tmp_path: Path, first: str, second: str, by: str
) -> None:
    """The first micro-batch and a later one: each is planned by one format, and run by the other."""
    topic = create_topic(kafka_address, 1)
    options = {by: topic, "startingOffsets": "earliest"}
    send_plain(kafka_address, topic, ["a", "b"])
    fail_in_micro_batch(spark, first, kafka_address, tmp_path, options)
    send_plain(kafka_address, topic, ["c"])
    batches = micro_batches(spark, second, kafka_address, tmp_path, options)
    assert [[row[3] for row in batch] for batch in batches] == [["a", "b"], ["c"]]
    send_plain(kafka_address, topic, ["d"])
    fail_in_micro_batch(spark, second, kafka_address, tmp_path, options)
    send_plain(kafka_address, topic, ["e"])
    batches = micro_batches(spark, first, kafka_address, tmp_path, options)
    assert [[row[3] for row in batch] for batch in batches] == [["d"], ["e"]]
    send_plain(kafka_address, topic, ["f"])
    fail_in_micro_batch(spark, first, kafka_address, tmp_path, options)
    batches = micro_batches(spark, second, kafka_address, tmp_path, options)
    # Ours adds an empty micro-batch to store what Spark's own does not.
    assert [[row[3] for row in batch] for batch in batches if batch] == [["f"]]
