"""Metrics at an OpenTelemetry collector: OTLP over HTTP with protobuf."""

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from spark_eos.metrics import ProcessMetrics
from spark_eos.metrics_export.sender import MetricsSender
from spark_eos.options.metrics import MetricsTargets
from spark_eos.runtime import REAL
from tests.support.spark_eos.scraping import Driver, driver, refusing_port
from tests.support.waiting import wait_until

__all__ = ["driver"]

DEADLINE_S = 60
PREFIX = "eos_kafka_sink"
LABELS = {"query": "a", "sink": "t"}


class Collector:
    """What a collector has received: the last value of each metric by labels, and the resource."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.values: dict[str, tuple[dict[str, str], int]] = {}
        self.kinds: dict[str, str] = {}
        self.resource: dict[str, str] = {}
        self.headers: dict[str, str] = {}

    def take(self, body: bytes, headers: Any) -> None:
        self.headers = {name.lower(): value for name, value in headers.items()}
        request = ExportMetricsServiceRequest.FromString(
            gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        )
        for resource in request.resource_metrics:
            self.resource = {each.key: each.value.string_value for each in resource.resource.attributes}
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                self.kinds[metric.name] = str(metric.WhichOneof("data"))
                for point in getattr(metric, self.kinds[metric.name]).data_points:
                    labels = {each.key: each.value.string_value for each in point.attributes}
                    self.values[metric.name] = labels, point.as_int


@contextmanager
def running_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])), self.headers)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}/v1/metrics")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


def test_metrics_are_sent_in_the_interval_of_the_sdk_and_when_the_driver_ends(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    sender, metrics = MetricsSender(REAL, driver.identity), ProcessMetrics(PREFIX)
    sender.sides = (metrics,)
    with running_collector() as collector:
        target = MetricsTargets(otlp_endpoint=collector.endpoint)
        with metrics.subject(**LABELS):
            metrics.add("records_committed", 5)
            metrics.set("time_to_timeout_ms", 7)
        sender.publish(target, DEADLINE_S)
        records = f"{PREFIX}_records_committed"
        wait_until(lambda: collector.values.get(records) == (LABELS, 5), "the counter", deadline_s=DEADLINE_S)
        assert collector.values[f"{PREFIX}_time_to_timeout_ms"] == (LABELS, 7)
        assert collector.kinds[records] == "sum" and collector.kinds[f"{PREFIX}_time_to_timeout_ms"] == "gauge"
        assert collector.resource["service.name"] == "eos-kafka"
        assert collector.resource["deployment.environment"] == "test"
        assert collector.headers["x-key"] == "secret"
        with metrics.subject(**LABELS):
            metrics.add("records_committed", 2)
        sender.publish(target, DEADLINE_S)
        driver.kill()
        driver.wait_for_exporter_end()
        wait_until(lambda: collector.values[records] == (LABELS, 7), "the last value", deadline_s=DEADLINE_S)


def test_collector_that_is_away_is_logged_once_and_stops_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    sender, metrics = MetricsSender(REAL, driver.identity), ProcessMetrics(PREFIX)
    sender.sides = (metrics,)
    endpoint = f"http://127.0.0.1:{refusing_port()}/v1/metrics"

    def is_logged() -> bool:
        metrics.add("records_committed")
        sender.publish(MetricsTargets(otlp_endpoint=endpoint), DEADLINE_S)
        return "metrics cannot be sent to" in caplog.text

    wait_until(is_logged, "the warning", deadline_s=DEADLINE_S)
    assert is_logged()
    assert len(re.findall("metrics cannot be sent to", caplog.text)) == 1
