"""All metrics of a driver: what its processes have sent, added up."""

from collections import deque
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, Final, NamedTuple

from spark_eos.metrics import SINK_METRICS, SOURCE_METRICS, Changes, Labels, MetricValues, ProcessMetrics

_SIDES: Final[Mapping[str, ProcessMetrics]] = {each.prefix: each for each in (SINK_METRICS, SOURCE_METRICS)}
_MOST_REPORTS: Final = 1_000


class Family(NamedTuple):
    """One metric with its values; the name of a counter has no suffix."""

    name: str
    meaning: str
    is_counter: bool
    values: dict[Labels, int]


class MetricStore:
    """The metrics of a driver, by side and subject, and the numbers of its last micro-batches; for several threads."""

    def __init__(self) -> None:
        self._values: dict[str, MetricValues] = {}
        self._reports: dict[str, deque[dict[str, Any]]] = {}
        self._lock = Lock()
        self.version = 0

    def apply(self, changes: Mapping[str, Changes]) -> None:
        """Apply what a process has sent."""
        with self._lock:
            self.version += bool(changes)
            for prefix, change in changes.items():
                values = self._values.setdefault(prefix, MetricValues())
                for subject in (change.counters.keys() | change.gauges.keys()) - values.by_subject.keys():
                    # Prometheus sees a counter grow only if it has seen it before.
                    values.of(subject).counters.update(_zeros(prefix))
                for subject, grown in change.counters.items():
                    counters = values.of(subject).counters
                    for name, amount in grown.items():
                        counters[name] = counters.get(name, 0) + amount
                for subject, gauges in change.gauges.items():
                    values.of(subject).gauges.update(gauges)
                self._reports.setdefault(prefix, deque(maxlen=_MOST_REPORTS)).extend(change.reports)

    def families(self) -> Iterator[Family]:
        """Return a copy of all metrics."""
        with self._lock:
            for prefix, values in self._values.items():
                known = _SIDES[prefix].definitions if prefix in _SIDES else {}
                found: dict[tuple[str, bool], dict[Labels, int]] = {}
                for subject, each in values.by_subject.items():
                    for name, value in each.counters.items():
                        found.setdefault((name, True), {})[subject] = value
                    for name, gauge in each.gauges.items():
                        of_name = found.setdefault((name, False), {})
                        of_name.update({(*subject, *labels): value for labels, value in gauge.items()})
                for (name, is_counter), by_labels in found.items():
                    meaning = known[name].meaning if name in known else name.replace("_", " ")
                    yield Family(f"{prefix}_{name}", meaning, is_counter, by_labels)

    def reports(self) -> dict[str, list[dict[str, Any]]]:
        """Return the numbers of the last micro-batches by side."""
        with self._lock:
            return {prefix: list(reports) for prefix, reports in self._reports.items()}


def _zeros(prefix: str) -> dict[str, int]:
    """Return all counters of a side, as those of a new subject."""
    definitions = _SIDES[prefix].definitions.values() if prefix in _SIDES else ()
    return {each.name: 0 for each in definitions if each.is_counter}
