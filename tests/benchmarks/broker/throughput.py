"""Produce and fetch in MB/s: record sizes, compression, producer ids, and isolation levels."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from tests.benchmarks.broker.load import Broker, Result
from tests.benchmarks.broker.rounds import Sample, Table, rounds

# The records of a round, by the bytes of each.
RECORDS = {100: 400_000, 1000: 100_000, 10_000: 10_000}
CODECS = ("none", "lz4")
TRANSACTION_RECORDS, ABORT_EVERY = 100, 10
QUICK = 10
# More than a round writes.
USED_MEGABYTES = 300

_topics = count()


def _megabytes(found: Result) -> Sample:
    return Sample(found["bytes"] / 1e6, found["seconds"], found["broker_s"])


def _use_memory() -> None:
    """Write to memory, so that the broker's files get pages that have just been used.

    A virtual machine with a balloon device may give pages back to its host two seconds after they are freed. The first
    write to such a page is five times as slow, and would be counted for the broker that happens to get it.
    """
    with tempfile.TemporaryFile() as file:
        for _ in range(USED_MEGABYTES):
            file.write(bytes(1_000_000))


def _with_topic(broker: Broker, work: Callable[[str], Mapping[str, Sample]]) -> Mapping[str, Sample]:
    """Do the work with a new topic and delete the topic."""
    _use_memory()
    topic = f"load-{next(_topics)}"
    broker.load("create", topic=topic)
    found = work(topic)
    broker.load("delete", topic=topic)
    return found


def _produce_and_fetch(broker: Broker, size: int, records: int, codec: str) -> Mapping[str, Sample]:
    def work(topic: str) -> Mapping[str, Sample]:
        produced = broker.load("produce", topic=topic, size=size, records=records, compression=codec)
        fetched = broker.load("fetch", topic=topic, records=records)
        return {"produce": _megabytes(produced), "fetch": _megabytes(fetched)}

    return _with_topic(broker, work)


def _producers(broker: Broker, records: int) -> Mapping[str, Sample]:
    found: dict[str, Sample] = {}
    for kind, plain in {"with": False, "without": True}.items():

        def work(topic: str, kind: str = kind, plain: bool = plain) -> Mapping[str, Sample]:
            return {kind: _megabytes(broker.load("produce", topic=topic, records=records, plain=plain))}

        found |= _with_topic(broker, work)
    return found


def _isolation(broker: Broker, records: int) -> Mapping[str, Sample]:
    def work(topic: str) -> Mapping[str, Sample]:
        written = broker.load(
            "produce",
            topic=topic,
            records=records,
            transaction_records=TRANSACTION_RECORDS,
            abort_every=ABORT_EVERY,
        )
        return {
            "produce": _megabytes(written),
            "committed": _megabytes(broker.load("fetch", topic=topic, records=written["committed"], committed=True)),
            "uncommitted": _megabytes(broker.load("fetch", topic=topic, records=records)),
        }

    return _with_topic(broker, work)


def measure(brokers: Sequence[Broker], *, quick: bool) -> str:
    """Return the table of MB/s."""
    times, share = (1, QUICK) if quick else (3, 1)
    table = Table("MB", [broker.name for broker in brokers])
    for codec in CODECS:
        for size, records in RECORDS.items():
            found = rounds(brokers, times, _produce_and_fetch, size, records // share, codec)
            named = f"{size:,} B records" + (f", {codec}" if codec != "none" else "")
            for work, samples in found.items():
                table.add(f"{work}, {named}", samples)
    found = rounds(brokers, times, _producers, RECORDS[1000] // share)
    for kind, samples in found.items():
        table.add(f"produce, 1,000 B records, {kind} a producer id", samples)
    found = rounds(brokers, times, _isolation, RECORDS[1000] // share)
    table.add(f"produce, 1,000 B records, transactions of {TRANSACTION_RECORDS}", found["produce"])
    for level in ("committed", "uncommitted"):
        table.add(f"fetch these at read_{level}", found[level])
    return table.markdown()
