"""Small transactions a second: concurrent producers that commit one record at a time to one partition."""

from collections.abc import Mapping, Sequence
from itertools import count

from tests.benchmarks.broker.load import Broker
from tests.benchmarks.broker.rounds import Sample, Table, rounds

# The transactions of a round, by the number of producers that share them.
TOTALS = {1: 500, 10: 2000, 100: 2000, 1000: 4000}
QUICK = 4

_prefixes = count()


def _commit(broker: Broker, producers: int, total: int) -> Mapping[str, Sample]:
    # New ids each time: the transactions before the measured ones are the first of their ids.
    found = broker.load(
        "transactions", topic="transactions", producers=producers, total=total, prefix=f"load-{next(_prefixes)}"
    )
    return {"commit": Sample(found["transactions"], found["seconds"], found["broker_s"])}


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of transactions a second."""
    for broker in brokers:
        broker.load("create", topic="transactions")
    table = Table("transaction", [broker.name for broker in brokers])
    for producers, total in TOTALS.items():
        share = max(total // QUICK, producers) if quick else total
        found = rounds(brokers, 1 if quick else 3, _commit, producers, share)
        table.add(f"{producers:,} producer{'s' * (producers > 1)}", found["commit"])
    return table.markdown()
