"""The sink in Spark: every column of a row, and processes that are killed."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.sink_query import end, lines_of, start
from tests.support.spark_eos.sink_steps import EXPECTED, arm, input_folder, prefix, topic
from tests.support.spark_eos.sink_topic import Topic, make_topic, open_transactions
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["arm", "failpoints_file", "input_folder", "prefix", "spark", "topic"]
pytestmark = pytest.mark.spark


def _run(spark: SparkSession, folder: Path, checkpoint: Path, options: Mapping[str, str]) -> None:
    end(start(lines_of(spark, str(folder)), str(checkpoint), options))


def test_batch_write_keeps_every_column_and_nulls(spark: SparkSession, topic: Topic) -> None:
    """Fields of headers are named in any case, as for Spark's own sink."""
    frame = spark.sql("""
        SELECT 'k' AS key, CAST(NULL AS string) AS value, 2 AS partition, 'ignored' AS other,
               array(named_struct('KEY', 'h', 'Value', X'00FF'),
                     named_struct('KEY', 'h', 'Value', CAST(NULL AS binary))) AS headers,
               timestamp_millis(1234567890123) AS timestamp
        UNION ALL SELECT NULL, 'v', 1, 'x', NULL, timestamp_millis(5)""")
    frame.write.format("eos-kafka").mode("append").options(**topic.options()).save()
    found = {(m.partition(), m.key(), m.value(), m.timestamp()[1], str(m.headers())) for m in topic.messages()}
    assert found == {
        (2, b"k", None, 1234567890123, str([("h", b"\x00\xff"), ("h", None)])),
        (1, None, b"v", 5, "None"),
    }


# tests/crash injects every fault at every step; here processes are killed between transactions V1.
@pytest.mark.parametrize("rule", ["driver.mid_complete=kill", "task.prepared=kill"])
def test_failed_query_is_repaired_by_a_restart(
    spark: SparkSession,
    tv1_address: str,
    input_folder: Path,
    tmp_path: Path,
    prefix: str,
    arm: Callable[[str], None],
    rule: str,
) -> None:
    topic = make_topic(tv1_address)
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


# The sink's log messages from workers are in Spark's own log


COLLECTED = "spark.sql.pyspark.worker.logging.enabled"
REUSE = "spark.python.worker.reuse"


@pytest.mark.spark
def test_worker_logs_reach_spark(spark: SparkSession, kafka_address: str) -> None:
    topic = make_topic(kafka_address)
    spark.conf.set(COLLECTED, "true")
    try:
        frame = spark.range(10).selectExpr("CAST(id AS string) AS value")
        frame.write.format("eos-kafka").mode("append").options(**topic.options()).save()
        logs = spark.tvf.python_worker_logs().where("logger LIKE 'spark_eos.sink.%'").collect()
    finally:
        spark.conf.set(COLLECTED, "false")
    texts = [row.msg for row in logs]
    for step in ("prepare took", "decide took", "complete took", "close took", "records_committed"):
        assert any(step in text for text in texts), (step, texts)


@pytest.mark.spark
@pytest.mark.parametrize("is_kept", [True, False])
def test_worker_reuse_is_detected(spark: SparkSession, kafka_address: str, is_kept: bool) -> None:
    topic = make_topic(kafka_address)
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(REUSE, str(is_kept).lower())
    spark.conf.set(COLLECTED, "true")
    job_id = unique("job")
    try:
        frame = spark.range(10).selectExpr("CAST(id AS string) AS value")
        frame.write.format("eos-kafka").mode("append").options(**topic.options(jobId=job_id)).save()
        logs = spark.tvf.python_worker_logs().where("logger LIKE 'spark_eos.sink.%' AND level = 'WARNING'").collect()
    finally:
        spark.conf.set(COLLECTED, "false")
        conf.remove(REUSE)
    warned = [row.msg for row in logs if job_id in row.msg and "spark.python.worker.reuse is false" in row.msg]
    assert len(warned) == (0 if is_kept else 1)
