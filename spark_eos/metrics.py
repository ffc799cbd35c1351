"""The metrics of the source and the sink in this process, and their HTTP endpoint.

PySpark gives a Python data source no way to add metrics to a query's progress. So they are in the log, and at an HTTP
endpoint of the driver's Python process that Prometheus scrapes.
"""

import logging
from collections.abc import Iterator, Mapping
from os import getpid
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from spark_eos.errors import OptionError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)
PORT_OPTION: Final = "metricsPort"
HOST_OPTION: Final = "metricsHost"
LOOPBACK: Final = "127.0.0.1"

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricsPlace(NamedTuple):
    """Where metrics are to be served."""

    host: str
    port: int


class ProcessMetrics:
    """The counters (which only grow) and gauges (which are set) of this process; names end with their unit.

    `prefix` begins each name for Prometheus.

    >>> metrics = ProcessMetrics("example")
    >>> metrics.add("records_committed", 3)
    >>> dict(metrics.snapshot())
    {'records_committed': 3}
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, dict[Labels, int]] = {}
        self._lock = Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Increase a counter."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        """Set a gauge."""
        self.set_each(name, {(): value})

    def set_each(self, name: str, values: Mapping[Labels, int]) -> None:
        """Set a gauge with several labels; labels that are not in `values` are removed."""
        with self._lock:
            self._gauges[name] = dict(values)

    def snapshot(self) -> Mapping[str, int]:
        """Return a copy of all values, by name and labels in Prometheus' format."""
        return {
            _written(name, labels): value for name, _, values in self.families() for labels, value in values.items()
        }

    def families(self) -> list[tuple[str, bool, dict[Labels, int]]]:
        """Return a copy of all values by name, with whether each is a counter."""
        with self._lock:
            found: list[tuple[str, bool, dict[Labels, int]]] = []
            found += [(name, True, {(): value}) for name, value in self._counters.items()]
            return found + [(name, False, dict(values)) for name, values in self._gauges.items()]


SINK_METRICS: Final = ProcessMetrics("eos_kafka_sink")
SOURCE_METRICS: Final = ProcessMetrics("eos_kafka_source")


def _written(name: str, labels: Labels) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in labels)
    return f"{name}{{{inside}}}" if inside else name


def metrics_place(options: Mapping[str, str]) -> MetricsPlace | None:
    """Parse where metrics are to be served, from options with lower-case names; None for nowhere."""
    port, host = options.get(PORT_OPTION.lower()), options.get(HOST_OPTION.lower())
    if port is None:
        if host is not None:
            raise OptionError(
                f"Option '{HOST_OPTION}' has no effect without '{PORT_OPTION}'",
                remedy=f"Set '{PORT_OPTION}' too, or remove '{HOST_OPTION}'",
            )
        return None
    text = port.strip()
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**16:
        raise OptionError(f"Option '{PORT_OPTION}' is {port!r}", remedy="Use a port from 1 to 65535")
    return MetricsPlace((host or LOOPBACK).strip(), int(text))


def check_servable(place: MetricsPlace | None) -> None:
    """Refuse to serve metrics if the library for it is missing, before any data is read or written."""
    if place is None:
        return
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"Option '{PORT_OPTION}' needs the package prometheus-client, which is not installed on the driver",
            remedy=f"Run `pip install 'eos-kafka[metrics]'` on the driver, or remove '{PORT_OPTION}'",
        ) from error


# By process, because workers are forked. None: the port was in use, which is logged once, and is tried again.
_served: dict[tuple[int, MetricsPlace], int | None] = {}


def serve(metrics: ProcessMetrics, place: MetricsPlace | None) -> int | None:
    """Serve the metrics until the process ends, and return the port; further calls do nothing.

    A port in use does not stop a query: it is logged once and tried again the next time, because the process that uses
    it may be the one that served this query before.
    """
    if place is None:
        return None
    key = (getpid(), place)
    if _served.get(key) is not None:
        return _served[key]
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_PrometheusCollector(metrics))
    try:
        server, _ = start_http_server(place.port, place.host, registry)
    except OSError as error:
        if key not in _served:
            logger.warning(
                "cannot serve metrics on %s:%d: %s. The query continues without them. Every process of the "
                "driver needs its own port: give each source, sink and query a different '%s'",
                *place,
                error,
                PORT_OPTION,
            )
        _served[key] = None
        return None
    _served[key] = port = int(server.server_port)
    logger.info("metrics are served at http://%s:%d/metrics", place.host, port)
    return port


class _PrometheusCollector:
    """The metrics as Prometheus reads them."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        """Yield every metric with its current value."""
        from prometheus_client.core import Metric

        for name, is_counter, values in self._metrics.families():
            full_name = f"{self._metrics.prefix}_{name}"
            family = Metric(full_name, name.replace("_", " "), "counter" if is_counter else "gauge")
            for labels, value in values.items():
                family.add_sample(f"{full_name}_total" if is_counter else full_name, dict(labels), value)
            yield family
