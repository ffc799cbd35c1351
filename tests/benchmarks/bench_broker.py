"""Measure the embedded broker beside Apache Kafka, in one run: `python -m tests.benchmarks.bench_broker`.

Every figure is taken with librdkafka as the client, on both brokers in turn, so the ratio says more than the
figures do. Apache Kafka writes to a file system, the embedded broker to memory and, in a line of its own, to disk
with a sync before each answer. Where Apache Kafka cannot be run its column says so.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core.embedded import EmbeddedBroker
from tests.support.apache_kafka import Unavailable, apache_kafka

SIZES = {100: 300_000, 10_000: 20_000}
PRODUCERS = (1, 10, 100)
TRANSACTIONS = 300
DEADLINE_S = 120.0
QUIET = {"log_level": 0}


def produce(address: str, topic: str, size_bytes: int, count: int) -> float:
    """Produce and return MB/s."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": count,
                         "queue.buffering.max.kbytes": 2_000_000, **QUIET})
    value = b"x" * size_bytes
    started = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    return size_bytes * count / 1e6 / (time.perf_counter() - started)


def fetch(address: str, topic: str, size_bytes: int, count: int) -> float:
    """Fetch what was produced and return MB/s."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "fetch.wait.max.ms": 50, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    started = time.perf_counter()
    seen = 0
    while seen < count:
        assert time.perf_counter() - started < DEADLINE_S
        seen += len(consumer.consume(10_000, 0.1))
    rate = size_bytes * count / 1e6 / (time.perf_counter() - started)
    consumer.close()
    return rate


def transactions(address: str, topic: str, producers: int) -> float:
    """Commit small transactions by several producers in turn and return how many a second."""
    made = [Producer({"bootstrap.servers": address, "transactional.id": f"bench-{producers}-{n}", "linger.ms": 0,
                      **QUIET}) for n in range(producers)]
    for producer in made:
        producer.init_transactions(DEADLINE_S)
    started = time.perf_counter()
    for number in range(TRANSACTIONS):
        producer = made[number % producers]
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.commit_transaction(DEADLINE_S)
    return TRANSACTIONS / (time.perf_counter() - started)


def first_acknowledged(start: Callable[[], str]) -> float:
    """Return the ms from the start of a broker to its first acknowledged record."""
    started = time.perf_counter()
    address = start()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, **QUIET})
    producer.produce("first", b"x")
    assert producer.flush(DEADLINE_S) == 0
    return (time.perf_counter() - started) * 1000


@contextmanager
def embedded(data_dir: str | None) -> Iterator[tuple[str, float]]:
    """Run the embedded broker and give its address and the ms to its first acknowledged record."""
    kafka = EmbeddedBroker(data_dir=data_dir)
    try:
        taken_ms = first_acknowledged(lambda: kafka.start().bootstrap_servers)
        yield kafka.bootstrap_servers, taken_ms
    finally:
        kafka.close()


@contextmanager
def apache() -> Iterator[tuple[str, float]]:
    """Run Apache Kafka, its storage formatted before, and give the same."""
    with apache_kafka({}) as node:
        yield node.bootstrap_servers, first_acknowledged(lambda: node.bootstrap_servers)


def measure(address: str) -> dict[str, float]:
    """Take every figure of one broker."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    topics = [f"size-{size}" for size in SIZES] + ["transactions"]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result(DEADLINE_S)
    figures = {}
    for size_bytes, count in SIZES.items():
        figures[f"produce {size_bytes} B records, MB/s"] = produce(address, f"size-{size_bytes}", size_bytes, count)
        figures[f"fetch {size_bytes} B records, MB/s"] = fetch(address, f"size-{size_bytes}", size_bytes, count)
    for producers in PRODUCERS:
        figures[f"transactions/s, {producers} producers in turn"] = transactions(address, "transactions", producers)
    return figures


def main() -> None:
    """Measure all brokers and print a table."""
    columns: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        brokers = {"memory": embedded(None), "disk, synced": embedded(folder), "Apache Kafka": apache()}
        for name, broker in brokers.items():
            try:
                with broker as (address, first_ms):
                    columns[name] = {"start to first acknowledged record, ms": first_ms, **measure(address)}
            except Unavailable as problem:
                print(f"{name}: {problem}")
    print(f"{'':45}" + "".join(f"{name:>15}" for name in columns) + f"{'memory/Apache':>15}")
    for figure in next(iter(columns.values())):
        row = [columns[name][figure] for name in columns]
        ratio = f"{row[0] / row[-1]:15.2f}" if "Apache Kafka" in columns and "start" not in figure else f"{'':>15}"
        print(f"{figure:45}" + "".join(f"{value:15.1f}" for value in row) + ratio)
    print("Apache Kafka's first line leaves out the start of its JVM, which takes seconds.")


if __name__ == "__main__":
    main()
