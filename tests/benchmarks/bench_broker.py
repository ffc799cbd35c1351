"""Measure the broker beside Apache Kafka, in one run: `python -m tests.benchmarks.bench_broker`.

Each broker is a separate process, all run at once, and librdkafka is the client of all. Each round measures one broker
after another, and the result is the median of the rounds: other load affects all of them alike, so the ratios are more
reliable than the figures. A warm-up round before the first is not counted.

`memory` keeps its logs in memory, `disk` syncs before each response, Apache Kafka writes to the file system and leaves
syncing to it. Concurrent producers share a sync on `disk`; its line for one producer shows the cost of a sync.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import Unavailable, apache_kafka

APACHE = "Apache Kafka"
# The options of Apache Kafka's own start script.
APACHE_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
RECORDS = {100: 200_000, 10_000: 10_000}
# The number of transactions of a round, by the number of producers that share them.
TRANSACTIONS = {1: 300, 10: 1000, 100: 1000}
ROUNDS = 3
STARTS = 5
DEADLINE_S = 120.0
QUIET = {"log_level": 0}
# Measured in a new interpreter each time: in processor time, which other load changes little, and in wall time.
IMPORT = "import time; t = time.process_time(); import broker_core.embedded; print((time.process_time() - t) * 1000)"
FIRST = "from tests.benchmarks.bench_broker import first_acknowledged; print(first_acknowledged())"

Measurement = Callable[[], float]


@contextmanager
def standalone(*arguments: str) -> Iterator[str]:
    """Run `python -m broker_core` and yield its address."""
    command = [sys.executable, "-m", "broker_core", "--port", "0", "--log-level", "ERROR", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]
        finally:
            process.terminate()


@contextmanager
def apache() -> Iterator[str]:
    """Run Apache Kafka and yield its address."""
    with apache_kafka(jvm=APACHE_JVM) as node:
        yield node.bootstrap_servers


def recreate(address: str, topic: str) -> None:
    """Create an empty topic of that name, without the records of an earlier round."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    if topic in admin.list_topics(timeout=DEADLINE_S).topics:
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        started = time.perf_counter()
        while topic in admin.list_topics(timeout=DEADLINE_S).topics:
            assert time.perf_counter() - started < DEADLINE_S
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)


def produce(address: str, size_bytes: int) -> float:
    """Produce records to a new topic and return MB/s."""
    topic, count = f"size-{size_bytes}", RECORDS[size_bytes]
    recreate(address, topic)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "queue.buffering.max.messages": count,
            "queue.buffering.max.kbytes": 2_000_000,
            **QUIET,
        }
    )
    value = b"x" * size_bytes
    started = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    return size_bytes * count / 1e6 / (time.perf_counter() - started)


def fetch(address: str, size_bytes: int) -> float:
    """Fetch the records of the last topic and return MB/s."""
    topic, count = f"size-{size_bytes}", RECORDS[size_bytes]
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


def transactional_producers(address: str, count: int) -> list[Producer]:
    """Return producers that have their producer ids."""
    producers = [
        Producer({"bootstrap.servers": address, "transactional.id": f"bench-{count}-{number}", "linger.ms": 0, **QUIET})
        for number in range(count)
    ]
    for producer in producers:
        producer.init_transactions(DEADLINE_S)
    return producers


def transactions(producers: list[Producer], total: int) -> float:
    """Commit transactions of one record by all producers at once and return how many a second."""
    begun = threading.Barrier(len(producers) + 1)

    def work(producer: Producer) -> None:
        begun.wait()
        for _ in range(total // len(producers)):
            producer.begin_transaction()
            producer.produce("transactions", b"x")
            producer.commit_transaction(DEADLINE_S)

    threads = [threading.Thread(target=work, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    begun.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return total / (time.perf_counter() - started)


def first_acknowledged() -> float:
    """Return the ms from the start of an embedded broker to its first acknowledged record, client included."""
    started = time.perf_counter()
    with EmbeddedBroker() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, **QUIET})
        producer.produce("first", b"x")
        assert producer.flush(DEADLINE_S) == 0
        return (time.perf_counter() - started) * 1000


def in_new_interpreter(code: str) -> float:
    """Return the median of the figures that the code prints."""
    return statistics.median(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(STARTS)
    )


def medians(measurements: dict[str, Measurement]) -> dict[str, float]:
    """Measure each broker in turn, round by round, and return the median for each."""
    rounds = [{name: measure() for name, measure in measurements.items()} for _ in range(1 + ROUNDS)]
    return {name: statistics.median(each[name] for each in rounds[1:]) for name in measurements}


def report(figure: str, found: dict[str, float]) -> None:
    """Print one line of the table: the figures, then the ratios."""
    peer = found.get(APACHE)
    ratios = [f"{value / peer:10.2f}" for name, value in found.items() if name != APACHE] if peer else []
    print(f"{figure:37}" + "".join(f"{value:14.1f}" for value in found.values()) + "".join(ratios), flush=True)


def compare(brokers: dict[str, str]) -> None:
    """Print the figures of all brokers."""
    ratios = [f"{name + '/A':>10}" for name in brokers if name != APACHE] if APACHE in brokers else []
    print(f"{f'medians of {ROUNDS} rounds':37}" + "".join(f"{name:>14}" for name in brokers) + "".join(ratios))
    for size_bytes in RECORDS:
        for work in (produce, fetch):
            report(
                f"{work.__name__} {size_bytes} B records, MB/s",
                medians({name: partial(work, address, size_bytes) for name, address in brokers.items()}),
            )
    for address in brokers.values():
        recreate(address, "transactions")
    for count, total in TRANSACTIONS.items():
        producers = {name: transactional_producers(address, count) for name, address in brokers.items()}
        report(
            f"transactions/s, {count} producers at once",
            medians({name: partial(transactions, own, total) for name, own in producers.items()}),
        )


def main() -> None:
    """Measure all brokers and print a table."""
    print(f"import of broker_core.embedded: {in_new_interpreter(IMPORT):.0f} ms of processor time")
    print(f"start to first acknowledged record: {in_new_interpreter(FIRST):.0f} ms", flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        brokers = {}
        for name, broker in {
            "memory": standalone(),
            "disk": standalone("--data-dir", folder),
            APACHE: apache(),
        }.items():
            try:
                brokers[name] = stack.enter_context(broker)
            except Unavailable as problem:
                print(f"{name}: {problem}")
        compare(brokers)


if __name__ == "__main__":
    main()
