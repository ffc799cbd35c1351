"""End-to-end latency: one producer that sends at a fixed pace, and one consumer."""

import statistics
import sys
from collections.abc import Sequence
from itertools import count

from tests.benchmarks.broker.load import Broker, Result
from tests.benchmarks.broker.rounds import markdown

RATE = 1000
SECONDS = 5

_topics = count()


def _round(broker: Broker, seconds: int) -> Result:
    topic = f"latency-{next(_topics)}"
    broker.load("create", topic=topic)
    found = broker.load("latency", topic=topic, rate=RATE, records=RATE * seconds)
    broker.load("delete", topic=topic)
    return found


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of latencies."""
    seconds, times = (2, 1) if quick else (SECONDS, 3)
    found: dict[str, list[Result]] = {broker.name: [] for broker in brokers}
    for number in range(1 + times):
        for broker in brokers:
            result = _round(broker, seconds)
            if number:
                found[broker.name].append(result)
    rows = []
    for name, results in found.items():
        figures = [statistics.median(each[figure] for each in results) for figure in ("p50_ms", "p99_ms")]
        share = sum(each["broker_s"] for each in results) / sum(each["seconds"] for each in results)
        rows.append([name, *(f"{figure:.2f}" for figure in figures), f"{share:.0%}"])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    return markdown(["broker", "p50, ms", "p99, ms", "the broker's share of a core"], rows)
