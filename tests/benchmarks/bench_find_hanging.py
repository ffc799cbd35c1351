"""Measure `find-hanging --all-topics` on three brokers: `python -m tests.benchmarks.bench_find_hanging`.

The topics have 10,000 partitions in `broker_core` and 1,500 in Apache Kafka, whose three nodes here share one machine.
One open transaction is in 100 of them, so that coordinators are queried, too. Each command is a process of its own, so
the time includes the start of Python. Where Apache Kafka cannot run, a line says why.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker_core import EmbeddedBroker
from tests.support.apache_cluster import apache_cluster
from tests.support.apache_kafka import Unavailable
from tests.support.waiting import wait_until

TOPICS, WRITTEN = 100, 100
DEADLINE_S = 240
IN_FLIGHT = (1, 2, 4)
RUNS = 3


def measure(name: str, bootstrap_servers: str, partitions: int) -> None:
    """Open the transaction, and print a row for each bound of requests in flight."""
    # Its log would be between the rows.
    producer = Producer(
        {
            "log_level": 0,
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "bench",
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(WRITTEN):
        producer.produce(f"t{number % TOPICS}", b"open", partition=0)
    producer.flush(DEADLINE_S)
    # The first search also waits until all brokers know the new topics.
    search(bootstrap_servers, IN_FLIGHT[0], partitions)
    for bound in IN_FLIGHT:
        taken = [search(bootstrap_servers, bound, partitions) for _ in range(RUNS)]
        seconds, cpu_seconds = (median(each) for each in zip(*taken, strict=True))
        print(f"{name:14}{partitions:12}{bound:12}{seconds:10.2f}{cpu_seconds:14.2f}", flush=True)
    producer.abort_transaction(DEADLINE_S)


def search(bootstrap_servers: str, bound: int, partitions: int) -> tuple[float, float]:
    """Run the command once; return how many seconds it took, and how many of a processor."""
    words = ("--all-topics", "--max-transaction-timeout", "-1", "--max-in-flight", str(bound), "--output", "json")
    command = (sys.executable, "-m", "spark_eos.admin", "transactions", "--bootstrap-server", bootstrap_servers)
    began, used = time.perf_counter(), cpu_of_children()
    done = subprocess.run([*command, "find-hanging", *words], capture_output=True, text=True, timeout=DEADLINE_S)
    taken = time.perf_counter() - began, cpu_of_children() - used
    assert done.returncode == 0, done.stderr
    checked, others = done.stderr.split()[1], done.stderr.split()[6]
    # The internal topics have some more.
    assert int(checked) >= partitions and int(others) == WRITTEN, done.stderr
    return taken


def cpu_of_children() -> float:
    """Return the processor time of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    """Measure both and print a table."""
    print(f"{'broker':14}{'partitions':>12}{'in flight':>12}{'seconds':>10}{'CPU seconds':>14}", flush=True)
    with EmbeddedBroker(brokers=3, topics={f"t{number}": 100 for number in range(TOPICS)}) as embedded:
        measure("broker_core", embedded.bootstrap_servers, TOPICS * 100)
    try:
        with tempfile.TemporaryDirectory() as folder, apache_cluster(Path(folder)) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            made = admin.create_topics([NewTopic(f"t{number}", 15, 1) for number in range(TOPICS)])
            for future in made.values():
                future.result(DEADLINE_S)
            wait_until(lambda: has_leaders(admin), "all partitions have leaders", deadline_s=DEADLINE_S)
            measure("Apache Kafka", cluster.bootstrap_servers, TOPICS * 15)
    except Unavailable as problem:
        print(f"Apache Kafka: {problem}")


def has_leaders(admin: AdminClient) -> bool:
    """Return whether the brokers know a leader of every partition."""
    topics = admin.list_topics(timeout=30).topics.values()
    return all(partition.leader >= 0 for topic in topics for partition in topic.partitions.values())


if __name__ == "__main__":
    main()
