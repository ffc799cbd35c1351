"""Growth: the processor time of one more of something when there are many already.

What costs the same at each size grows linearly as a whole. Each size has topics of its own, and the broker keeps what
the smaller sizes left behind.
"""

import sys
from collections.abc import Callable, Sequence

from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import markdown

SIZES = (1000, 3000, 10_000)
# Of partitions and connections, each takes a file or more.
FEWER = (300, 1000, 3000)
QUICK = 10

Costs = dict[str, float]


def _oldest_first(broker: Broker, count: int) -> Costs:
    found = _open_transactions(broker, count, "oldest")
    return {
        "begin a transaction, all stay open": found["begin_broker_s"],
        "commit them, the oldest first, until the last stable offset is at the end": found["broker_s"],
    }


def _newest_first(broker: Broker, count: int) -> Costs:
    return {"commit them, the newest first": _open_transactions(broker, count, "newest")["broker_s"]}


def _open_transactions(broker: Broker, count: int, first: str) -> Costs:
    topic = f"open-{count}-{first}"
    broker.load("create", topic=topic)
    return broker.load("open", topic=topic, count=count, newest_first=first == "newest")


def _partitions(broker: Broker, count: int) -> Costs:
    topic = f"partitions-{count}"
    created = broker.load("create", topic=topic, partitions=count)
    filled = broker.load("producers", topic=topic, count=count)
    return {"create a partition": created["broker_s"], "write its first record": filled["broker_s"]}


def _producers(broker: Broker, count: int) -> Costs:
    topic = f"producers-{count}"
    broker.load("create", topic=topic)
    found = broker.load("producers", topic=topic, count=count)
    return {"write a producer id's first record, all in one partition": found["broker_s"]}


def _connections(broker: Broker, count: int) -> Costs:
    return {"accept a connection and answer ApiVersions": broker.load("connections", count=count)["broker_s"]}


WORK: dict[Callable[[Broker, int], Costs], Sequence[int]] = {
    _oldest_first: SIZES,
    _newest_first: SIZES,
    _producers: SIZES,
    _partitions: FEWER,
    _connections: FEWER,
}


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of costs by size."""
    names = [broker.name for broker in brokers]
    rows = []
    for work, full in WORK.items():
        sizes = [size // QUICK for size in full] if quick else full
        costs: dict[str, dict[str, list[str]]] = {}
        for size in sizes:
            for broker in brokers:
                for what, seconds in work(broker, size).items():
                    each = costs.setdefault(what, {}).setdefault(broker.name, [])
                    each.append(f"{seconds * 1e6 / size:,.0f}")
        for what, own in costs.items():
            rows.append([what, ", ".join(f"{size:,}" for size in sizes), *(", ".join(own[name]) for name in names)])
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return markdown(["what", "how many", *(f"{name}, µs of processor time for each" for name in names)], rows)
