"""Measure the first write and the first committed micro-batch of a fresh session, one process for each figure.

The broker is warm: another producer has committed a transaction with offsets, so the topics that a broker creates for
its first transaction exist. The sink's decision topic does not.

`python -m tests.benchmarks.bench_spark --what cold`; `python -m tests.benchmarks.spark_cold SESSION FORMAT` prints one
figure.
"""

import statistics
import sys
import tempfile
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.benchmarks.null_sink import NULL_FORMAT
from tests.benchmarks.spark_bench import (
    OURS,
    PEERS,
    SPARKS,
    create_topic,
    open_broker,
    open_session,
    run_quietly,
    sparks_own,
)
from tests.benchmarks.spark_latency import wait_for

ROWS = 1_000
TOPIC = "cold"
REPEATS = 3
_KINDS = ("write", "stream")


def measure(session: str, broker: str) -> int:
    """Print for each kind of work how long the first and the second took; return how many processes failed."""
    failed = 0
    formats = [OURS, NULL_FORMAT, *([SPARKS] if sparks_own() else [])]
    for kind in _KINDS:
        figures: dict[str, list[list[float]]] = {}
        for name in REPEATS * formats:
            command = [sys.executable, "-m", "tests.benchmarks.spark_cold", session, name, kind, broker]
            with tempfile.TemporaryFile("w+") as answer:
                if not run_quietly(command, answer):
                    failed += 1
                    continue
                answer.seek(0)
                figures.setdefault(name, []).append([float(word) for word in answer.read().splitlines()[-1].split()])
        seconds = {
            name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in figures.items()
        }
        what = "first and second df.write" if kind == "write" else "first committed micro-batch, and the second"
        line = ", ".join(f"{name} {first:.1f} {second:.2f}" for name, (first, second) in seconds.items())
        more = ", ".join(f"{seconds[OURS][0] - seconds[peer][0]:.1f} s more than {PEERS[peer]}"
                         for peer in formats[1:] if OURS in seconds and peer in seconds)  # fmt: skip
        print(
            f"[{session}] cold, {what} of {ROWS:,} rows, s: {line}; the first takes {more or 'that alone'}",
            flush=True,
        )
    return failed


def warm(address: str) -> None:
    """Commit a transaction with a record and an offset."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "warm"})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "warm"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"warm")
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()


def write(spark: SparkSession, name: str, address: str) -> list[float]:
    """Write twice and return the seconds of each."""
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        writer = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value").write.format(name)
        writer.mode("append").option("kafka.bootstrap.servers", address).option("topic", TOPIC).save()
        taken.append(time.perf_counter() - started)
    return taken


def stream(spark: SparkSession, name: str, address: str) -> list[float]:
    """Start a query and return the seconds until its first micro-batch is committed, and those of its second one."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    frame = source.load().selectExpr("cast(value as string) as value")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(name).option("checkpointLocation", checkpoint)
        query = writer.option("kafka.bootstrap.servers", address).option("topic", TOPIC).start()
        wait_for(query, 2)
        progress = query.recentProgress[:2]
        query.stop()
        return [each["durationMs"]["triggerExecution"] / 1000 for each in progress]


def main(session: str, name: str, kind: str, broker: str = "broker_core") -> None:
    """Print the two figures of one format."""
    more = sparks_own() if name == SPARKS else {}
    with open_broker(broker) as kafka:
        address = kafka.address
        create_topic(address, TOPIC, 4)
        warm(address)
        spark = open_session(session, more)
        # The session is warm: the JVM's first query is not measured.
        spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value").write.format("noop").mode("append").save()
        taken = (write if kind == "write" else stream)(spark, name, address)
        spark.stop()
    print(*taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
