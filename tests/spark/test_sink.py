"""The sink in Spark with faults at every step; an independent reader counts what is visible."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.spark_eos.sink_query import lines_of, start
from tests.support.spark_eos.sink_steps import EXPECTED, arm, input_folder, prefix, topic
from tests.support.spark_eos.sink_topic import Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["arm", "failpoints_file", "input_folder", "prefix", "spark", "topic"]
pytestmark = pytest.mark.spark
PROCESS_DEADLINE_S = 240


def _run(spark: SparkSession, folder: Path, checkpoint: Path, options: Mapping[str, str]) -> None:
    query = start(lines_of(spark, str(folder)), str(checkpoint), options)
    assert query.awaitTermination(PROCESS_DEADLINE_S), "the query did not end"


@pytest.mark.parametrize(("key", "value"), [("key", "value"), ("KEY", "Value")])
def test_batch_write_keeps_every_column_and_nulls(spark: SparkSession, topic: Topic, key: str, value: str) -> None:
    """Fields of headers are named in any case, as for Spark's own sink."""
    frame = spark.sql(f"""
        SELECT 'k' AS key, CAST(NULL AS string) AS value, 2 AS partition, 'ignored' AS other,
               array(named_struct('{key}', 'h', '{value}', X'00FF'),
                     named_struct('{key}', 'h', '{value}', CAST(NULL AS binary))) AS headers,
               timestamp_millis(1234567890123) AS timestamp
        UNION ALL SELECT NULL, 'v', 1, 'x', NULL, timestamp_millis(5)""")
    frame.write.format("eos-kafka").mode("append").options(**topic.options()).save()
    found = {(m.partition(), m.key(), m.value(), m.timestamp()[1], str(m.headers())) for m in topic.messages()}
    assert found == {
        (2, b"k", None, 1234567890123, str([("h", b"\x00\xff"), ("h", None)])),
        (1, None, b"v", 5, "None"),
    }


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_write_supports_every_codec(spark: SparkSession, topic: Topic, codec: str) -> None:
    frame = spark.range(500).selectExpr("CAST(id AS string) AS value")
    options = topic.options(**{"kafka.compression.type": codec, "batch.size": "2000"})
    frame.write.format("eos-kafka").mode("append").options(**options).save()
    assert topic.values() == sorted(str(number) for number in range(500))


def test_topic_column_distributes_rows_over_topics(spark: SparkSession, kafka_address: str) -> None:
    one, two = make_topic(kafka_address, 1), make_topic(kafka_address, 2)
    frame = spark.createDataFrame([(one.name, "1"), (two.name, "2"), (one.name, "3")], "topic string, value string")
    frame.write.format("eos-kafka").mode("append").option("kafka.bootstrap.servers", kafka_address).save()
    assert (one.values(), two.values()) == (["1", "3"], ["2"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "x"}, "Did you mean 'topic'"),
        ({"topic": "no-such-topic-anywhere"}, "does not exist"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1500"}, "127.0.0.1:1"),
    ],
)
def test_wrong_options_are_refused_before_sending(
    spark: SparkSession, topic: Topic, options: dict[str, str], text: str
) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(Exception, match=text):
        frame.write.format("eos-kafka").mode("append").options(**(topic.options() | options)).save()
    assert topic.values() == []


def test_overwrite_is_refused_with_spark_error_text(spark: SparkSession, topic: Topic) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(Exception, match="Save mode Overwrite not allowed for Kafka"):
        frame.write.format("eos-kafka").mode("overwrite").options(**topic.options()).save()


def test_update_mode_is_refused_by_spark_for_python_sinks(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path
) -> None:
    """Spark's JVM checks this for its own class; if this fails, docs/spark/sink.md is out of date on output modes."""
    writer = lines_of(spark, str(input_folder)).writeStream.format("eos-kafka").outputMode("update")
    query = writer.options(**topic.options(), checkpointLocation=str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="eos-kafka does not support Update mode"):
        query.awaitTermination(PROCESS_DEADLINE_S)
    assert topic.values() == []


@pytest.mark.parametrize("kind", ["timestamp_ntz", "bigint"])
def test_timestamp_ntz_is_refused_before_the_job_starts(spark: SparkSession, topic: Topic, kind: str) -> None:
    value = {"timestamp_ntz": "timestamp_ntz'2024-01-01 00:00:00'", "bigint": "1234567890123L"}[kind]
    frame = spark.range(1).selectExpr("'v' AS value", f"{value} AS timestamp", "raise_error('a task ran') AS other")
    with pytest.raises(Exception, match=f"timestamp attribute unsupported type {kind}"):
        frame.write.format("eos-kafka").mode("append").options(**topic.options()).save()


def test_job_outlasting_its_transaction_timeout_fails_early(spark: SparkSession, topic: Topic, prefix: str) -> None:
    slow = "reflect('java.lang.Thread', 'sleep', 1000L)"
    frame = spark.range(0, 40, 1, 40).selectExpr(f"coalesce({slow}, CAST(id AS string)) AS value")
    options = topic.options(transactionTimeout="2s", transactionalIdPrefix=prefix)
    with pytest.raises(PySparkException, match=r"has taken longer than transactionTimeout \(2000 ms\).*is 900000 ms"):
        frame.write.format("eos-kafka").mode("append").options(**options).save()
    assert topic.values() == []


# tests/crash injects every fault at every step; here an error makes Spark call `abort`, or a process is killed.
@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("V2", "driver.before_decide=raise"),
        ("V2", "driver.after_decide=raise"),
        ("V1", "driver.mid_complete=kill"),
        ("V1", "task.prepared=kill"),
    ],
)
def test_failed_query_is_repaired_by_a_restart(
    spark: SparkSession,
    kafka_address: str,
    tv1_address: str,
    input_folder: Path,
    tmp_path: Path,
    prefix: str,
    arm: Callable[[str], None],
    version: str,
    rule: str,
) -> None:
    topic = make_topic({"V2": kafka_address, "V1": tv1_address}[version])
    options = topic.options(transactionalIdPrefix=prefix)
    arm(f"{rule}@1")
    # Spark repeats a task whose worker was killed, in the same run.
    if rule.startswith("driver"):
        with pytest.raises(StreamingQueryException):
            _run(spark, input_folder, tmp_path / "checkpoint", options)
    _run(spark, input_folder, tmp_path / "checkpoint", options)
    assert topic.values() == EXPECTED
    assert open_transactions(topic.address, prefix) == []
    assert topic.is_stable()


def test_decided_batch_that_timed_out_completely_is_rewritten(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path, prefix: str, arm: Callable[[str], None]
) -> None:
    options = topic.options(transactionalIdPrefix=prefix, transactionTimeout="8s")
    arm("driver.after_decide=raise@1")
    with pytest.raises(StreamingQueryException):
        _run(spark, input_folder, tmp_path / "checkpoint", options)
    wait_until(lambda: not open_transactions(topic.address, prefix), "the transactions time out", deadline_s=60)
    _run(spark, input_folder, tmp_path / "checkpoint", options)
    assert topic.values() == EXPECTED


def test_decided_batch_that_timed_out_partly_stops_the_query_or_is_repaired(
    spark: SparkSession, topic: Topic, input_folder: Path, tmp_path: Path, prefix: str, arm: Callable[[str], None]
) -> None:
    options = topic.options(transactionalIdPrefix=prefix, transactionTimeout="8s")
    arm("driver.mid_complete=raise@1")
    with pytest.raises(StreamingQueryException):
        _run(spark, input_folder, tmp_path / "checkpoint", options)
    wait_until(lambda: not open_transactions(topic.address, prefix), "the transaction times out", deadline_s=60)
    seen = topic.values()
    with pytest.raises(StreamingQueryException, match=r"1 of its 2 transactions.*onLostTransaction=rewrite"):
        _run(spark, input_folder, tmp_path / "checkpoint", options)
    assert topic.values() == seen
    _run(spark, input_folder, tmp_path / "checkpoint", options | {"onLostTransaction": "rewrite"})
    assert topic.values() == EXPECTED
