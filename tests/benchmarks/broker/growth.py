"""Growth: the processor time of one more of something when there are many already.

What costs the same at each size grows linearly as a whole. Each size has topics and groups of its own, and the broker
keeps what the smaller sizes left behind, except for members of groups. A snapshot is measured in this process.
"""

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from broker_core import EmbeddedBroker
from broker_core.config import STANDARD_AUTHORIZER
from tests.benchmarks.broker.brokers import MEMORY, running
from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import markdown

SIZES = (1000, 3000, 10_000)
# Of partitions and connections, each takes a file or more.
FEWER = (300, 1000, 3000)
MEMBERS = (50, 150, 500)
GROUP_PARTITIONS = 100
# A group's first rebalance waits this long for more members, so that all join in one.
JOIN_DELAY_MS = 1000
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": str(JOIN_DELAY_MS),
}
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


def _topics(broker: Broker, count: int) -> Costs:
    found = broker.load("topics", topic=f"topics-{count}", count=count)
    return {"create a topic, each by its own request": found["broker_s"]}


def _modern_members(broker: Broker, count: int) -> Costs:
    topic = f"modern-{count}"
    broker.load("create", topic=topic, partitions=GROUP_PARTITIONS)
    found = broker.load("modern", topic=topic, count=count)
    return {f"join a consumer group (KIP-848) that reads {GROUP_PARTITIONS} partitions": found["broker_s"]}


def _classic_members(broker: Broker, count: int) -> Costs:
    found = broker.load("classic", topic=f"classic-{count}", count=count)
    return {"join a classic group, all in one rebalance": found["broker_s"]}


def _acls(broker: Broker, count: int) -> Costs:
    found = broker.load("acls", topic=f"acls-{count}", count=count)
    return {"create an ACL, each by its own request": found["broker_s"]}


def _snapshot(_broker: Broker, count: int) -> Costs:
    with EmbeddedBroker(topics={"filled": count}) as kafka:
        kafka.produce("filled", [(None, "x", (), None, each) for each in range(count)])
        # The cost of garbage collection depends on all that this process has.
        gc.disable()
        try:
            started = time.process_time()
            snapshot = kafka.snapshot()
            taken = time.process_time()
            kafka.restore(snapshot)
            restored = time.process_time()
        finally:
            gc.enable()
    return {
        "`snapshot()`, for each partition with a record": taken - started,
        "`restore()` of it, for each partition": restored - taken,
    }


Work = Mapping[Callable[[Broker, int], Costs], Sequence[int]]
WORK: Work = {
    _oldest_first: SIZES,
    _newest_first: SIZES,
    _producers: SIZES,
    _partitions: FEWER,
    _connections: FEWER,
    _modern_members: MEMBERS,
    _topics: FEWER,
}
# With an authorizer, which the other work is measured without.
WORK_WITH_SETTINGS: Work = {
    _classic_members: MEMBERS,
    _acls: SIZES,
}
WORK_EMBEDDED: Work = {
    _snapshot: FEWER,
}


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of costs by size."""
    names = [broker.name for broker in brokers]
    rows = _rows(names, brokers, WORK, quick=quick)
    with running(names, SETTINGS) as others:
        rows += _rows(names, others, WORK_WITH_SETTINGS, quick=quick)
    rows += _rows(names, [broker for broker in brokers if broker.name == MEMORY], WORK_EMBEDDED, quick=quick)
    return markdown(["what", "how many", *(f"{name}, µs of processor time for each" for name in names)], rows)


def _rows(names: Sequence[str], brokers: Sequence[Broker], works: Work, *, quick: bool) -> list[list[str]]:
    rows = []
    for work, full in works.items():
        sizes = [size // QUICK for size in full] if quick else full
        costs: dict[str, dict[str, list[str]]] = {}
        for size in sizes:
            for broker in brokers:
                for what, seconds in work(broker, size).items():
                    each = costs.setdefault(what, {}).setdefault(broker.name, [])
                    each.append(f"{seconds * 1e6 / size:,.0f}")
        for what, own in costs.items():
            rows.append(
                [what, ", ".join(f"{size:,}" for size in sizes), *(", ".join(own.get(name, ())) for name in names)]
            )
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return rows
