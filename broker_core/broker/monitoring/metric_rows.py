"""The rows of the table of metrics: what each one is called, and where its samples are."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from broker_core.broker.monitoring.metrics import BrokerMetrics, Durations

# Labels and value of each sample; the value of a summary is a `Durations`.
Samples: TypeAlias = Iterable[tuple[dict[str, str], float | Durations]]
GAUGE: Final = "gauge"
COUNTER: Final = "counter"
SUMMARY: Final = "summary"


class MetricRow(NamedTuple):
    """One metric; `attribute` is the attribute of `BrokerMetrics` with the same value."""

    name: str
    kind: str
    meaning: str
    attribute: str
    samples: Callable[[BrokerMetrics], Samples]
    labels: tuple[str, ...] = ()


def one(name: str, kind: str, meaning: str, attribute: str) -> MetricRow:
    """Return the row of a metric without labels, whose value is an attribute of `BrokerMetrics`."""
    value = attrgetter(attribute)
    return MetricRow(name, kind, meaning, attribute, lambda metrics: [({}, value(metrics))])
