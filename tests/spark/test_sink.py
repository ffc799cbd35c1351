"""The sink in Spark: every column of a row, and its log messages."""

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
pytestmark = pytest.mark.spark


def test_batch_write_keeps_every_column_and_nulls(spark: SparkSession, kafka_address: str) -> None:
    """Fields of headers are named in any case, as for Spark's own sink."""
    topic = make_topic(kafka_address)
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


COLLECTED = "spark.sql.pyspark.worker.logging.enabled"
REUSE = "spark.python.worker.reuse"


@pytest.mark.parametrize("is_kept", [True, False])
def test_worker_logs_reach_spark_and_have_a_warning_without_worker_reuse(
    spark: SparkSession, kafka_address: str, is_kept: bool
) -> None:
    topic, job_id = make_topic(kafka_address), unique("job")
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(REUSE, str(is_kept).lower())
    spark.conf.set(COLLECTED, "true")
    try:
        frame = spark.range(10).selectExpr("CAST(id AS string) AS value")
        frame.write.format("eos-kafka").mode("append").options(**topic.options(jobId=job_id)).save()
        logs = spark.tvf.python_worker_logs().where("logger LIKE 'spark_eos.sink.%'").collect()
    finally:
        spark.conf.set(COLLECTED, "false")
        conf.remove(REUSE)
    texts = [row.msg for row in logs]
    for step in ("prepare took", "decide took", "complete took", "close took", "records_committed"):
        assert any(step in text for text in texts), (step, texts)
    warned = [row.level for row in logs if job_id in row.msg and f"{REUSE} is false" in row.msg]
    assert warned == ([] if is_kept else ["WARNING"])
