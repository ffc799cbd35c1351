"""The metrics of the source and the sink that this process has counted, by query.

PySpark gives a Python data source no way to add metrics to a query's progress. So they are in the log, and are sent to
a process that exports them (`metrics_export`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.resources import files
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
Gauge: TypeAlias = dict[Labels, int]

# Jobs have names of their own, and a driver may run any number of them.
MOST_SUBJECTS: Final = 1_000
MOST_REPORTS: Final = 100


class MetricDefinition(NamedTuple):
    """One metric: its name without the prefix of its side, its meaning, and its own labels.

    `metrics.json` has them, and docs/reference/metrics.md is generated from it; Prometheus reads the meaning as HELP.
    """

    name: str
    meaning: str
    is_counter: bool = False
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class SubjectValues:
    """The metrics of one subject, which its labels name: a query and its sink, or a query and its source."""

    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)


class MetricValues:
    """The values of many subjects; subjects that were not changed for the longest time are dropped."""

    def __init__(self) -> None:
        self.by_subject: dict[Labels, SubjectValues] = {}
        self._newest: Labels | None = None

    def of(self, subject: Labels) -> SubjectValues:
        if subject == self._newest:
            return self.by_subject[subject]
        self._newest = subject
        values = self.by_subject.pop(subject, None) or SubjectValues()
        self.by_subject[subject] = values
        if len(self.by_subject) > MOST_SUBJECTS:
            del self.by_subject[next(iter(self.by_subject))]
        return values

    def merge(self, newer: "MetricValues") -> None:
        """Add the counters, and take the gauges."""
        for subject, each in newer.by_subject.items():
            values = self.of(subject)
            for name, amount in each.counters.items():
                values.counters[name] = values.counters.get(name, 0) + amount
            values.gauges.update(each.gauges)


@dataclass(slots=True)
class Changes:
    """What has changed since the last time: increments of counters, new values of gauges, and numbers of batches."""

    values: MetricValues = field(default_factory=MetricValues)
    reports: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.values.by_subject or self.reports)


class ProcessMetrics:
    """The counters (which only grow) and gauges (which are set) of this process; names end with their unit.

    `prefix` begins each name for Prometheus; `labels` name a subject; `definitions` describe the names. What a thread
    counts belongs to the subject that it is in.

    >>> metrics = ProcessMetrics("example")
    >>> with metrics.subject(query="a"):
    ...     metrics.add("records_committed", 3)
    ...     dict(metrics.snapshot())
    {'records_committed': 3}
    """

    def __init__(self, prefix: str, definitions: Iterable[MetricDefinition] = (), labels: tuple[str, ...] = ()) -> None:
        self.prefix = prefix
        self.definitions: Final = {each.name: each for each in definitions}
        self.labels: Final = labels
        self._values = MetricValues()
        self._subject: ContextVar[Labels] = ContextVar(f"{prefix} subject", default=())
        self._changes = Changes()
        self._lock = Lock()

    @contextmanager
    def subject(self, **labels: str) -> Iterator[None]:
        """Count what this thread does for one subject."""
        token = self._subject.set(tuple(labels.items()))
        try:
            yield
        finally:
            self._subject.reset(token)

    def add(self, name: str, amount: int = 1) -> None:
        subject = self._subject.get()
        with self._lock:
            for values in (self._values, self._changes.values):
                counters = values.of(subject).counters
                counters[name] = counters.get(name, 0) + amount

    def set(self, name: str, value: int) -> None:
        self.set_each(name, {(): value})

    def set_each(self, name: str, values: Mapping[Labels, int]) -> None:
        """Set a gauge with several labels; labels that are not in `values` are removed."""
        subject = self._subject.get()
        with self._lock:
            for each in (self._values, self._changes.values):
                each.of(subject).gauges[name] = dict(values)

    def clear_gauges(self) -> None:
        for name in self._values.of(self._subject.get()).gauges:
            self.set_each(name, {})

    def report(self, **numbers: Any) -> None:
        """Record the numbers of one micro-batch, for users who log its progress."""
        with self._lock:
            self._changes.reports.append(dict(self._subject.get()) | numbers)
            del self._changes.reports[:-MOST_REPORTS]

    def snapshot(self) -> Mapping[str, int]:
        """Return a copy of the values of this thread's subject, by name and labels in Prometheus' format."""
        with self._lock:
            values = self._values.of(self._subject.get())
            found = dict(values.counters)
            return found | {
                _written(name, labels): value for name, each in values.gauges.items() for labels, value in each.items()
            }

    def changes(self) -> Changes:
        with self._lock:
            found, self._changes = self._changes, Changes()
            return found

    def take_back(self, changes: Changes) -> None:
        """Return changes with the next call that could not be delivered; a gauge may have changed since."""
        with self._lock:
            newer, self._changes = self._changes, changes
            changes.values.merge(newer.values)
            changes.reports[:] = (changes.reports + newer.reports)[:MOST_REPORTS]


def _of(side: str) -> ProcessMetrics:
    rows = json.loads(files(__package__).joinpath("metrics.json").read_text("utf-8"))[side]
    definitions = (MetricDefinition(**{**row, "labels": tuple(row.get("labels", ()))}) for row in rows)
    return ProcessMetrics(f"eos_kafka_{side}", definitions, ("query", side))


SINK_METRICS: Final = _of("sink")
SOURCE_METRICS: Final = _of("source")


def _written(name: str, labels: Labels) -> str:
    if not labels:
        return name
    inside = ",".join(f'{label}="{value}"' for label, value in labels)
    return f"{name}{{{inside}}}"
