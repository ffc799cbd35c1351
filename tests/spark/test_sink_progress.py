"""The sink's log messages from workers are in Spark's own log."""

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.spark_session import failpoints_file, spark

__all__ = ["failpoints_file", "spark"]
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
