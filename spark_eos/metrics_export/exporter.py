"""The exporter: a process that has the metrics of one driver, and ends with it.

Its outputs are a port and a textfile for Prometheus, and OpenTelemetry.
"""

import json
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from broker_core.types import address_text
from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS
from spark_eos.metrics_export.meeting_place import DriverProcess, MeetingPlace, is_alive, receive
from spark_eos.metrics_export.store import REPORTS_PATH, MetricStore, selected
from spark_eos.options.metrics import MetricsTargets

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from prometheus_client import CollectorRegistry

_REWRITTEN_SECONDS: Final = 15.0


class Output:
    """One place where the metrics go; `problem` is why it does not work at the moment, or empty."""

    problem = ""

    def __init__(self, place: Any, store: MetricStore) -> None:
        self._place, self._store = place, store

    def tick(self) -> None:
        """Do what is due; called often."""

    def close(self) -> None:
        """Export the last values."""


class HttpOutput(Output):
    """The port that Prometheus scrapes; one that is in use is tried again until it is free."""

    def __init__(self, place: tuple[str, int], store: MetricStore) -> None:
        super().__init__(place, store)
        self._registry = registry_of(store)
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int | None:
        return None if self._server is None else int(self._server.server_address[1])

    def tick(self) -> None:
        if self._server is not None:
            return
        try:
            self._server = self._opened()
        except OSError as error:
            self.problem = f"metrics cannot be served on {address_text(*self._place)}: {error}"
            return
        self.problem = ""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.server_close()

    def _opened(self) -> ThreadingHTTPServer:
        from prometheus_client import MetricsHandler

        host, port = self._place
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        metrics, store = self._registry, self._store

        class MetricsPage(MetricsHandler):
            registry = metrics
            timeout = 10

            def do_GET(self) -> None:  # noqa: N802
                path, _, query = self.path.partition("?")
                if path in ("/", "/metrics"):
                    super().do_GET()
                elif path != REPORTS_PATH:
                    self.send_error(404)
                else:
                    body = selected(store.reports(), query)
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

        return Server(address[:2], MetricsPage)  # type: ignore[arg-type]


class TextfileOutput(Output):
    """The file that node_exporter's textfile collector reads; it is replaced as a whole, and stays at the end.

    It is also written while nothing changes, so its age shows whether the driver is alive.
    """

    def __init__(self, path: str, store: MetricStore) -> None:
        super().__init__(path, store)
        self._registry = registry_of(store)
        self._version = -1
        self._written_at = 0.0

    def tick(self) -> None:
        if self._store.version != self._version or time.monotonic() - self._written_at >= _REWRITTEN_SECONDS:
            self.close()

    def close(self) -> None:
        from prometheus_client import write_to_textfile

        version = self._store.version
        try:
            write_to_textfile(self._place, self._registry)
        except OSError as error:
            self.problem = f"metrics cannot be written to {self._place}: {error}"
            return
        self.problem, self._version, self._written_at = "", version, time.monotonic()


class OtlpOutput(Output):
    """An OpenTelemetry collector, by OTLP over HTTP; intervals and headers are set by the SDK's own variables."""

    def __init__(self, endpoint: str, store: MetricStore) -> None:
        super().__init__(endpoint, store)
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource

        output = self

        class WatchedExporter(OTLPMetricExporter):
            def export(self, *args: Any, **options: Any) -> MetricExportResult:
                result = super().export(*args, **options)
                failed = result is not MetricExportResult.SUCCESS
                output.problem = f"metrics cannot be sent to {endpoint}" if failed else ""
                return result

        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "eos-kafka"}))
        reader = PeriodicExportingMetricReader(WatchedExporter(endpoint=endpoint))
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("spark_eos")
        for side in (SINK_METRICS, SOURCE_METRICS):
            for definition in side.definitions.values():
                create = meter.create_observable_counter if definition.is_counter else meter.create_observable_gauge
                name = f"{side.prefix}_{definition.name}"
                create(name, [self._callback(name)], description=definition.meaning)

    # The SDK exports periodically.
    def close(self) -> None:
        self._provider.shutdown(timeout_millis=5_000)

    def _callback(self, name: str) -> Any:
        def observe(_options: "CallbackOptions") -> "Iterable[Observation]":
            from opentelemetry.metrics import Observation

            for family in self._store.families():
                if family.name == name:
                    for labels, value in family.values.items():
                        yield Observation(value, dict(labels))

        return observe


def registry_of(store: MetricStore) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(store)
    return registry


# How soon after its driver it ends, and how soon it tries a port again.
TICK_SECONDS: Final = 0.5


class Exporter:
    """The metrics of a driver, its outputs, and the socket where processes send changes."""

    def __init__(self, driver: DriverProcess) -> None:
        """Raise FileExistsError if the driver has an exporter."""
        self._driver = driver
        self._meeting = MeetingPlace(driver)
        self._store = MetricStore()
        self._outputs: dict[tuple[type[Output], object], Output] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._receive_all, daemon=True).start()
        pause = threading.Event()
        while is_alive(self._driver) and self._meeting.is_mine:
            self._for_each_output("tick")
            pause.wait(TICK_SECONDS)
        self._meeting.close()
        self._for_each_output("close")

    def _for_each_output(self, method: str) -> None:
        with self._lock:
            for output in self._outputs.values():
                try:
                    getattr(output, method)()
                except Exception as error:
                    # One output must not end the others.
                    output.problem = f"metrics cannot be exported: {error!r}"

    def _receive_all(self) -> None:
        while True:
            try:
                connection, _ = self._meeting.listener.accept()
            except OSError:
                return
            # A process may be killed while it sends: what is truncated cannot be unpickled.
            with suppress(OSError, EOFError, pickle.UnpicklingError), connection:
                connection.settimeout(5.0)
                message = receive(connection)
                if message:
                    targets, changes = pickle.loads(message)
                    self._store.apply(changes)
                    connection.sendall(json.dumps(self._answer(targets)).encode())

    def _answer(self, targets: list[MetricsTargets]) -> dict[str, object]:
        outputs = [
            self._output(kind, place)
            for each in targets
            for kind, place in (
                (HttpOutput, None if each.port is None else (each.host, each.port)),
                (TextfileOutput, each.textfile),
                (OtlpOutput, each.otlp_endpoint),
            )
            if place is not None
        ]
        ports = [each.port for each in outputs if isinstance(each, HttpOutput)]
        return {"problems": [each.problem for each in outputs if each.problem], "ports": ports}

    def _output(self, kind: type[Output], place: Any) -> Output:
        with self._lock:
            output = self._outputs.get((kind, place))
            if output is None:
                output = self._outputs[kind, place] = kind(place, self._store)
                output.tick()
            return output


def main() -> None:
    """Run in a process of its own, with a driver's id and start time as arguments."""
    with suppress(FileExistsError):
        Exporter(DriverProcess(int(sys.argv[1]), sys.argv[2])).run()
    # Threads of libraries must not keep the process.
    os._exit(0)
