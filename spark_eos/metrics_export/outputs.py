"""The outputs of an exporter: a port and a textfile for Prometheus, and OpenTelemetry."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker_core.types import address_text
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS
from spark_eos.metrics_export.reports import REPORTS_PATH, selected
from spark_eos.metrics_export.store import MetricStore
from spark_eos.options.metrics import MetricsTargets

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_REQUEST_SECONDS: Final = 10
_REWRITTEN_SECONDS: Final = 15.0
_LAST_EXPORT_MS: Final = 5_000


class Output(Protocol):
    """One place where the metrics go."""

    # Why it does not work at the moment, or empty.
    problem: str

    def tick(self) -> None:
        """Do what is due; called often."""

    def close(self) -> None:
        """Export the last values."""


def outputs_of(targets: MetricsTargets, store: MetricStore) -> Iterator[tuple[object, type[Any]]]:
    """Return the arguments and kind of each output of the targets."""
    if targets.port is not None:
        yield (targets.host, targets.port), HttpOutput
    if targets.textfile is not None:
        yield targets.textfile, TextfileOutput
    if targets.otlp_endpoint is not None:
        yield targets.otlp_endpoint, OtlpOutput


class HttpOutput:
    """The port that Prometheus scrapes; one that is in use is tried again until it is free."""

    def __init__(self, place: tuple[str, int], store: MetricStore) -> None:
        self.place = place
        self.problem = ""
        self._registry = registry_of(store)
        self._store = store
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int | None:
        """Return the port, or None if it is in use."""
        return None if self._server is None else int(self._server.server_address[1])

    def tick(self) -> None:
        """Open the port if it is not open."""
        if self._server is not None:
            return
        try:
            self._server = self._opened()
        except OSError as error:
            self.problem = f"metrics cannot be served on {address_text(*self.place)}: {error}"
            return
        self.problem = ""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.server_close()

    def _opened(self) -> ThreadingHTTPServer:
        host, port = self.place
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        registry, store = self._registry, self._store

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path == REPORTS_PATH:
                    self._answer("application/json", selected(store.reports(), query))
                elif path in ("/", "/metrics"):
                    from prometheus_client.exposition import choose_encoder

                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(content_type, encode(registry))
                else:
                    self.send_error(404)

            def _answer(self, content_type: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

        return Server(address[:2], Handler)  # type: ignore[arg-type]


class TextfileOutput:
    """The file that node_exporter's textfile collector reads; it is replaced as a whole, and stays at the end.

    It is also written while nothing changes, so its age shows whether the driver is alive.
    """

    def __init__(self, path: str, store: MetricStore) -> None:
        self.problem = ""
        self._path = path
        self._store = store
        self._registry = registry_of(store)
        self._version = -1
        self._written_at = 0.0

    def tick(self) -> None:
        """Write the file if the values have changed or it is old."""
        if self._store.version != self._version or time.monotonic() - self._written_at >= _REWRITTEN_SECONDS:
            self.close()

    def close(self) -> None:
        """Write the file."""
        from prometheus_client import write_to_textfile

        version = self._store.version
        try:
            write_to_textfile(self._path, self._registry)
        except OSError as error:
            self.problem = f"metrics cannot be written to {self._path}: {error}"
            return
        self.problem, self._version, self._written_at = "", version, time.monotonic()


class OtlpOutput:
    """An OpenTelemetry collector, by OTLP over HTTP; intervals and headers are set by the SDK's own variables."""

    def __init__(self, endpoint: str, store: MetricStore) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource

        self.problem = ""
        output = self

        class Exporter(OTLPMetricExporter):
            def export(self, *args: Any, **options: Any) -> MetricExportResult:
                result = super().export(*args, **options)
                failed = result is not MetricExportResult.SUCCESS
                output.problem = f"metrics cannot be sent to {endpoint}" if failed else ""
                return result

        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "eos-kafka"}))
        reader = PeriodicExportingMetricReader(Exporter(endpoint=endpoint))
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._store = store
        self._create_instruments()

    def tick(self) -> None:
        """Do nothing: the SDK exports periodically."""

    def close(self) -> None:
        """Export the last values."""
        self._provider.shutdown(_LAST_EXPORT_MS)

    def _create_instruments(self) -> None:
        meter = self._provider.get_meter("spark_eos")
        for side in (SINK_METRICS, SOURCE_METRICS):
            for definition in side.definitions.values():
                create = meter.create_observable_counter if definition.is_counter else meter.create_observable_gauge
                name = f"{side.prefix}_{definition.name}"
                create(name, [self._callback(name)], description=definition.meaning)

    def _callback(self, name: str) -> Any:
        def observe(_options: "CallbackOptions") -> "Iterable[Observation]":
            from opentelemetry.metrics import Observation

            for family in self._store.families():
                if family.name == name:
                    for labels, value in family.values.items():
                        yield Observation(value, dict(labels))

        return observe


def registry_of(store: MetricStore) -> "CollectorRegistry":
    """Return the metrics as Prometheus' library reads them."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(store))
    return registry


class _Collector:
    def __init__(self, store: MetricStore) -> None:
        self._store = store

    def collect(self) -> "Iterator[Metric]":
        """Yield every metric with its current values."""
        from prometheus_client.core import Metric

        for each in self._store.families():
            family = Metric(each.name, each.meaning, "counter" if each.is_counter else "gauge")
            for labels, value in each.values.items():
                family.add_sample(f"{each.name}_total" if each.is_counter else each.name, dict(labels), value)
            yield family
