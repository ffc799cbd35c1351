"""The metrics of the source and the sink in this process, and the options of their HTTP endpoint.

PySpark gives a Python data source no way to add metrics to a query's progress. So they are in the log, and at an HTTP
endpoint of the driver's Python process that Prometheus scrapes (`metrics_endpoint`).
"""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from spark_eos.errors import OptionError

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
