"""Interleaved rounds over all brokers, and the table of what they found.

Each round measures one broker after another, so that other load on the machine affects all of them alike. The clock's
figure is the median of the rounds. Processor time, which other load changes little, is added up over the rounds. One
round before the first warms up and does not count.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.benchmarks.broker.brokers import APACHE
from tests.benchmarks.broker.load import Broker


@dataclass(frozen=True)
class Sample:
    """One measurement: an amount of work, and the seconds by the clock and of the broker's processor time."""

    amount: float
    seconds: float
    broker_s: float


Samples = Mapping[str, Sequence[Sample]]


def rounds(
    brokers: Sequence[Broker], count: int, measure: Callable[..., Mapping[str, Sample]], *work: object
) -> dict[str, Samples]:
    """Call `measure(broker, *work)` for all brokers in turn; return the samples by figure and by broker."""
    found: dict[str, dict[str, list[Sample]]] = {}
    for number in range(1 + count):
        for broker in brokers:
            for figure, sample in measure(broker, *work).items():
                if number:
                    found.setdefault(figure, {}).setdefault(broker.name, []).append(sample)
    return dict(found)


@dataclass
class Table:
    """Rows of a rate for each broker, its ratio to Apache Kafka's, and the processor time for each unit of work."""

    unit: str
    brokers: Sequence[str]
    heading: str = "what"
    _rows: list[list[str]] = field(default_factory=list)

    def add(self, figure: str, samples: Samples) -> None:
        """Add the row of a figure, and print it at once."""
        rates = {name: statistics.median(each.amount / each.seconds for each in own) for name, own in samples.items()}
        costs = {
            name: sum(each.broker_s for each in own) * 1000 / sum(each.amount for each in own)
            for name, own in samples.items()
        }
        row = [figure]
        for values in (rates, costs):
            row += [_figure(values[name]) if name in values else "" for name in self.brokers]
            if APACHE in self.brokers:
                peer = values.get(APACHE)
                ratios = (
                    [values[name] / peer for name in self.brokers if name != APACHE and name in values] if peer else []
                )
                row.append(", ".join(f"{ratio:.2f}" for ratio in ratios))
        self._rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        ratio = ["ratio"] if APACHE in self.brokers else []
        heads = [f"{self.heading}", *(f"{name}, {self.unit}/s" for name in self.brokers), *ratio]
        heads += [*(f"{name}, CPU ms/{self.unit}" for name in self.brokers), *ratio]
        return markdown(heads, self._rows)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def _figure(value: float) -> str:
    """Round to three digits, which is more than the machine's noise allows to read."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
