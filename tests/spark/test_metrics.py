"""Metrics while Spark runs: at the port of the session, in Spark's progress, and in that of our listener."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_eos
import spark_eos.progress_listener
from spark_eos.metrics_export.meeting_place import DriverProcess, _stat, driver_process, socket_path
from tests.support.spark_eos.scraping import free_port, scraped
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.source_data import create_topic, send_plain
from tests.support.spark_eos.spark_session import failpoints_file, spark
from tests.support.waiting import wait_until

__all__ = ["failpoints_file", "spark"]

SPARK_DEADLINE_S = 180


@pytest.mark.spark
def test_one_port_serves_source_and_sink_and_the_listener_adds_them_to_sparks_progress(
    spark: SparkSession, kafka_address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, out = create_topic(kafka_address), make_topic(kafka_address)
    send_plain(kafka_address, topic, "abcd")
    port, textfile = free_port(), tmp_path / "eos.prom"
    reported: list[dict[str, Any]] = []
    listener = spark_eos.ProgressListener(reported.append, port)
    spark.streams.addListener(listener)
    frame = (
        spark.readStream.format("eos-kafka")
        .options(
            **{
                "kafka.bootstrap.servers": kafka_address,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "metricsPort": str(port),
                "metricsQuery": "shout",
            }
        )
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("eos-kafka")
        .options(
            **out.options(
                metricsPort=str(port),
                metricsTextfile=str(textfile),
                checkpointLocation=str(tmp_path / "checkpoint"),
            )
        )
        .start()
    )
    try:
        merged = wait_until(
            lambda: [each for each in reported if each["numInputRows"]] or not query.isActive,
            "a micro-batch",
            deadline_s=SPARK_DEADLINE_S,
        )
        assert query.exception() is None
        assert isinstance(merged, list)
        progress = next(each for each in query.recentProgress if each.numInputRows)
        (source,) = progress.sources
        assert source.latestOffset == f'{{"{topic}": {{"0": 4}}}}'
        assert progress.sink.numOutputRows == 4
        # When Spark lets a Python data source report metrics, they belong here.
        assert (source.metrics, progress.sink.metrics) == ({}, {})
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    (numbers,), (of_source,) = merged[0]["eosKafka"]["sinks"], merged[0]["eosKafka"]["sources"]
    assert (merged[0]["id"], merged[0]["batchId"]) == (str(query.id), progress.batchId)
    assert (numbers["sink"], numbers["records"]) == (out.name, 4)
    # Spark itself names its classes for Python.
    assert "Python" in source.description and "Python" in progress.sink.description
    described = [each["description"] for each in (*merged[0]["sources"], merged[0]["sink"])]
    assert described == [f"eos-kafka: {topic}", f"eos-kafka: {out.name}"]
    assert numbers["transactions"] >= 1 and numbers["bytes"] > 0 and "decide_ms" in numbers
    assert (of_source["offsets_planned"], of_source["offsets_behind_high_watermark"]) == (4, 4)
    # The query has stopped, and the session goes on.
    found = scraped(port)
    labels = f"query={query.id} sink={out.name}"
    assert found[f"eos_kafka_sink_records_committed_total {labels}"] == 4
    assert found[f"eos_kafka_sink_undecided_since_timestamp_seconds {labels}"] == 0
    assert found[f"eos_kafka_source_offsets_planned_total query=shout source={topic}"] == 4
    wait_until(lambda: f'query="{query.id}"' in textfile.read_text(), "the file has the query's values")
    assert logging.getLogger("spark_eos.metrics").name not in caplog.text
    # The exporter ends with the JVM, which neither its own program nor a worker takes for another process.
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert driver_process() == DriverProcess(jvm, _stat(jvm).started)
    assert jvm != os.getpid() and socket_path(driver_process()).exists()
