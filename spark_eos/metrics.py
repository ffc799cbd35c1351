"""The metrics of the source and the sink in this process, and their HTTP endpoint.

PySpark gives a Python data source no way to add metrics to a query's progress. So they are in the log, and at an HTTP
endpoint of the driver's Python process that Prometheus scrapes.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
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


class MetricDefinition(NamedTuple):
    """One metric: its name without the prefix of its side, its meaning, and its labels.

    docs/reference/metrics.md is generated from these definitions; Prometheus reads the meaning as HELP.
    """

    name: str
    meaning: str
    is_counter: bool = False
    labels: tuple[str, ...] = ()


class ProcessMetrics:
    """The counters (which only grow) and gauges (which are set) of this process; names end with their unit.

    `prefix` begins each name for Prometheus; `definitions` describe the names.

    >>> metrics = ProcessMetrics("example")
    >>> metrics.add("records_committed", 3)
    >>> dict(metrics.snapshot())
    {'records_committed': 3}
    """

    def __init__(self, prefix: str, definitions: Iterable[MetricDefinition] = ()) -> None:
        self.prefix = prefix
        self.definitions: Final = {each.name: each for each in definitions}
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


_Def: Final = MetricDefinition
_PARTITION: Final = ("topic", "partition")
SINK_METRICS: Final = ProcessMetrics(
    "eos_kafka_sink",
    (
        _Def("transactions_committed", "Transactions committed", is_counter=True),
        _Def("records_committed", "Records committed", is_counter=True),
        _Def("bytes_committed", "Bytes of record batches committed, as they were sent", is_counter=True),
        _Def("transactions_aborted", "Transactions aborted with their micro-batch", is_counter=True),
        _Def("transactions_swept", "Orphans aborted: transactions that lost attempts left open", is_counter=True),
        _Def("sweeps_failed", "Searches for orphans that failed; they are repeated later", is_counter=True),
        _Def("produce_retries", "Produce requests that tasks sent again", is_counter=True),
        _Def("commit_retries", "Attempts to commit that were repeated before the decision", is_counter=True),
        _Def(
            "completion_retries", "Attempts to end the transactions of a decision that were repeated", is_counter=True
        ),
        _Def("transactional_ids_used", "Distinct transactional ids of tasks", is_counter=True),
        _Def("open_transactions", "Transactions of the newest micro-batch when it was verified"),
        _Def("oldest_open_age_ms", "Age of the oldest of them at that time"),
        _Def("time_to_timeout_ms", "Time left to the first of them at that time"),
        _Def("take_over_ms", "Duration of the latest takeover: fencing an older driver and reading its decision"),
        _Def("verify_ms", "Duration of the latest check that all transactions are still open; part of decide_ms"),
        _Def("decide_ms", "Duration of the latest decision"),
        _Def("complete_ms", "Duration of the latest completion: ending the transactions of a decision"),
        _Def("sweep_ms", "Duration of the latest search for orphans"),
        _Def("close_ms", "Duration of the latest note that a batch job is completed"),
        _Def("roll_forward_ms", "Duration of the latest completion of an earlier decision"),
        _Def("abort_ms", "Duration of the latest abort of a micro-batch"),
    ),
)
SOURCE_METRICS: Final = ProcessMetrics(
    "eos_kafka_source",
    (
        _Def("micro_batches_planned", "Micro-batches planned", is_counter=True),
        _Def("offsets_planned", "Offsets planned to be read", is_counter=True),
        _Def("data_losses", "Data losses that the driver found", is_counter=True),
        _Def(
            "offsets_behind_last_stable_offset", "Offsets from the query to the last stable offset", False, _PARTITION
        ),
        _Def("offsets_behind_high_watermark", "Offsets from the query to the high watermark", False, _PARTITION),
        _Def(
            "last_stable_offset_standing_ms",
            "How long an open transaction has held the last stable offset where it is",
            False,
            _PARTITION,
        ),
    ),
)


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
            known = self._metrics.definitions.get(name)
            meaning = name.replace("_", " ") if known is None else known.meaning
            family = Metric(full_name, meaning, "counter" if is_counter else "gauge")
            for labels, value in values.items():
                family.add_sample(f"{full_name}_total" if is_counter else full_name, dict(labels), value)
            yield family
