"""Memory: what connections, partitions and producer ids add to a broker's process, each broker new and alone.

For `broker_core` it is the resident memory of the process. The heap of Apache Kafka's JVM has its size from the start,
so for it it is what is left of the heap after a full garbage collection.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.benchmarks.broker.brokers import APACHE, NAMES, running
from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import markdown
from tests.support.memory import heap_bytes, resident_mib

CONNECTIONS, PARTITIONS, PRODUCERS = 3000, 3000, 300_000
IDLE_S = 10.0
QUICK = 10


def _megabytes(broker: Broker) -> float | None:
    """Return the broker's memory in MB; None where the JDK's tool is missing."""
    if broker.name != APACHE:
        return resident_mib("VmRSS", broker.process_id) * 2**20 / 1e6
    heap = heap_bytes(broker.process_id)
    return None if heap is None else heap / 1e6


@contextmanager
def _connections(broker: Broker, count: int) -> Iterator[None]:
    with broker.held_load("connections", count=count):
        yield


@contextmanager
def _partitions(broker: Broker, count: int) -> Iterator[None]:
    topic = f"partitions-{count}"
    broker.load("create", topic=topic, partitions=count)
    # A record in each, since a partition without one may be no more than a number.
    broker.load("producers", topic=topic, count=count)
    yield


@contextmanager
def _producers(broker: Broker, count: int) -> Iterator[None]:
    topic = f"producers-{count}"
    broker.load("create", topic=topic, partitions=10)
    broker.load("producers", topic=topic, count=count)
    yield


# Each row: what is added, how many, and for how many the figure is given.
ROWS: dict[str, tuple[Callable[[Broker, int], object], int, int]] = {
    "connections": (_connections, CONNECTIONS, 1000),
    "partitions with a record": (_partitions, PARTITIONS, 1000),
    "producer ids": (_producers, PRODUCERS, 100_000),
}


def _column(broker: Broker, share: int) -> list[str]:
    """Return the figures of one broker: when new, then what each kind of thing adds, then the idle broker's cost."""
    for add, _, _ in ROWS.values():
        with add(broker, 10):
            pass
    found = [_megabytes(broker)]
    for add, count, unit in ROWS.values():
        before = _megabytes(broker)
        with add(broker, count // share):
            after = _megabytes(broker)
        found.append(None if before is None or after is None else (after - before) * unit * share / count)
    used = broker.processor_time()
    time.sleep(IDLE_S / share)
    idle = (broker.processor_time() - used) / IDLE_S * share
    return [*("" if value is None else f"{value:.1f}" for value in found), f"{idle:.2%}"]


def measure(*, quick: bool) -> str:
    """Return the table of memory."""
    names: list[str] = []
    columns: list[Sequence[str]] = []
    for name in NAMES:
        with running([name]) as brokers:
            for broker in brokers:
                names.append(name)
                columns.append(_column(broker, QUICK if quick else 1))
                print(name, *columns[-1], sep=" | ", file=sys.stderr, flush=True)
    labels = ["a new broker, MB", *(f"{unit:,} {what} more, MB" for what, (_, _, unit) in ROWS.items())]
    labels.append("processor time of the idle broker with all of these, share of a core")
    return markdown(["what", *names], list(zip(labels, *columns, strict=True)))
