"""Metrics while Spark runs, at the driver's endpoint and partly in Spark's progress."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_eos.scraping import forgotten, free_port, scraped
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "forgotten", "spark"]

pytestmark = pytest.mark.usefixtures("forgotten")
DEADLINE_S = 60
SPARK_DEADLINE_S = 180


@pytest.mark.spark
def test_spark_progress_and_endpoints_report_the_metrics(
    spark: SparkSession, kafka_address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, out = create_topic(kafka_address), make_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    source_port, sink_port = free_port(), free_port()
    frame = (
        spark.readStream.format("eos-kafka")
        .options(
            **{
                "kafka.bootstrap.servers": kafka_address,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "metricsPort": str(source_port),
            }
        )
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("eos-kafka")
        .options(**out.options(metricsPort=str(sink_port), checkpointLocation=str(tmp_path / "checkpoint")))
        .start()
    )
    try:
        progress = wait_until(
            lambda: [each for each in query.recentProgress if each.numInputRows] or not query.isActive,
            "a micro-batch",
            deadline_s=SPARK_DEADLINE_S,
        )
        assert query.exception() is None
        assert isinstance(progress, list)
        progress = progress[0]
        (source,) = progress.sources
        assert source.latestOffset == f'{{"{topic}": {{"0": 4}}}}'
        assert progress.sink.numOutputRows == 4
        # When Spark lets a Python data source report metrics, they belong here.
        assert (source.metrics, progress.sink.metrics) == ({}, {})
        read, written = scraped(source_port), scraped(sink_port)
    finally:
        query.stop()
    assert read["eos_kafka_source_offsets_planned_total"] == 4
    assert read[f"eos_kafka_source_offsets_behind_high_watermark partition=0 topic={topic}"] >= 0
    # Spark keeps the process in which it commits for a minute, so a previous query may be counted, too.
    assert written["eos_kafka_sink_records_committed_total"] >= 4
    assert written["eos_kafka_sink_transactions_committed_total"] >= 1
    assert "eos_kafka_sink_decide_ms" in written
    assert logging.getLogger("spark_eos.metrics").name not in caplog.text
