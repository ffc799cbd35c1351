"""Numbers of the two sides of a query in this process, and where the user wants them served.

PySpark gives a Python data source no way to put numbers of its own into a query's progress. So they are in the log,
and at an HTTP endpoint of the driver's Python process (`metrics_endpoint`): Prometheus comes and reads, nothing is
pushed anywhere.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from spark_eos.errors import OptionError

PORT_OPTION: Final = "metricsPort"
HOST_OPTION: Final = "metricsHost"
LOOPBACK: Final = "127.0.0.1"

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricsPlace(NamedTuple):
    """Where numbers are to be served."""

    host: str
    port: int


class ProcessMetrics:
    """Counters (which only grow) and gauges (which are set) of this process; names end with their unit.

    `prefix` begins each name in what Prometheus reads.

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
        """Raise a counter."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        """Set a gauge."""
        self.set_each(name, {(): value})

    def set_each(self, name: str, values: Mapping[Labels, int]) -> None:
        """Set a gauge for each of what it is measured of; what is not named any more is forgotten."""
        with self._lock:
            self._gauges[name] = dict(values)

    def snapshot(self) -> Mapping[str, int]:
        """Copy all values, by name and labels as Prometheus writes them."""
        return {
            _written(name, labels): value for name, _, values in self.families() for labels, value in values.items()
        }

    def families(self) -> list[tuple[str, bool, dict[Labels, int]]]:
        """Copy all values by name, and say of each whether it is a counter."""
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
    """Read from options with lowered names where metrics are to be served; None for nowhere."""
    port, host = options.get(PORT_OPTION.lower()), options.get(HOST_OPTION.lower())
    if port is None:
        if host is not None:
            raise OptionError(
                f"Option '{HOST_OPTION}' has no meaning without '{PORT_OPTION}'",
                remedy=f"Give '{PORT_OPTION}' too, or remove it",
            )
        return None
    text = port.strip()
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**16:
        raise OptionError(f"Option '{PORT_OPTION}' is {port!r}", remedy="Give a port from 1 to 65535")
    return MetricsPlace((host or LOOPBACK).strip(), int(text))
