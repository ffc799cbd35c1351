"""The metrics at the endpoint of the process."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_eos.metrics import SOURCE_METRICS, MetricsPlace, ProcessMetrics
from spark_eos.metrics_endpoint import serve
from spark_eos.sink.columns import KEY, VALUE
from spark_eos.sink.spark_writers import BatchWriter
from spark_eos.source import lag
from tests.support.spark_eos.scraping import forgotten, free_port, scraped
from tests.support.spark_eos.sink_topic import make_topic
from tests.support.spark_eos.source_data import create_topic, send, send_plain, transactional_producer
from tests.support.spark_eos.source_query import running

__all__ = ["forgotten"]

pytestmark = pytest.mark.usefixtures("forgotten")
ROOT = Path(__file__).parents[3]
DEADLINE_S = 60
ANY_PORT = MetricsPlace("127.0.0.1", 0)


def test_prometheus_scrape_returns_current_values() -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows", 2)
    metrics.set("age_ms", 7)
    metrics.set_each("lag", {(("topic", 'a "b"'),): 4})
    port = serve(metrics, ANY_PORT)
    assert scraped(port) == {"eos_rows_total": 2, "eos_age_ms": 7, 'eos_lag topic=a "b"': 4}
    metrics.add("rows")
    assert scraped(port)["eos_rows_total"] == 3


def test_metrics_are_served_once_per_process_and_only_when_configured() -> None:
    metrics = ProcessMetrics("eos")
    assert serve(metrics, None) is None
    assert serve(metrics, ANY_PORT) == serve(metrics, ANY_PORT)


def test_occupied_metrics_port_logs_once_and_is_bound_when_free(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ProcessMetrics("eos")
    metrics.add("rows")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = MetricsPlace("127.0.0.1", taken.getsockname()[1])
        assert serve(metrics, place) is None
        assert serve(metrics, place) is None
    assert len(re.findall("cannot serve metrics on 127.0.0.1:.*a different 'metricsPort'", caplog.text)) == 1
    assert serve(metrics, place) == place.port
    assert scraped(place.port) == {"eos_rows_total": 1}


def test_both_packages_work_without_the_metrics_library() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None; import spark_eos.datasource, "
        "spark_eos.sink.factory, spark_eos.sink.spark_writers, spark_eos.source.spark_readers"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=DEADLINE_S)


def test_batch_job_serves_sink_metrics_from_its_commit_on(kafka_address: str) -> None:
    port = free_port()
    schema = StructType([StructField(KEY, BinaryType()), StructField(VALUE, BinaryType())])
    writer = BatchWriter(make_topic(kafka_address).options(metricsPort=str(port)), schema, False)
    writer.abort([])
    assert "eos_kafka_sink_abort_ms" in scraped(port)


def test_streaming_query_serves_its_counters_while_it_runs(kafka_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_LONGEST_PAUSE_SECONDS", 0.0)
    topic, port = create_topic(kafka_address), free_port()
    send_plain(kafka_address, topic, "abcd")
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    send(producer, topic, ["open"])
    before = SOURCE_METRICS.snapshot()
    with running(
        kafka_address, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3", metricsPort=str(port)
    ) as query:
        assert isinstance(scraped(port), dict), "before its first micro-batch"
        for _ in range(2):
            assert query.trigger()
        found = scraped(port)
    for name, grown in (("micro_batches_planned", 2), ("offsets_planned", 4)):
        assert found[f"{SOURCE_METRICS.prefix}_{name}_total"] == before.get(name, 0) + grown
    assert found[f"{SOURCE_METRICS.prefix}_offsets_behind_last_stable_offset partition=0 topic={topic}"] == 1
    assert found[f"{SOURCE_METRICS.prefix}_offsets_behind_high_watermark partition=0 topic={topic}"] == 2
    producer.abort_transaction(30)
