"""Measure source and sink in Spark beside Spark's own, and the sink beside one that does nothing.

`python -m tests.benchmarks.bench_spark`.

All are measured in turn, several times, in one session and against one Apache Kafka (or the embedded broker where
that cannot be run: it says so), and the median is taken. Spark's own sink and source come by Maven; where they
cannot be had, their column is missing.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from broker_core.embedded import EmbeddedBroker
from tests.benchmarks.null_sink import NULL_FORMAT, NullSource
from tests.spark_eos.spark_session import build_session, worker_environment
from tests.support.apache_kafka import Unavailable, apache_kafka
from tests.support.spark_kafka import spark_kafka_settings

OURS, SPARKS = "eos-kafka", "kafka"
ROWS = 2_000_000
PARTITIONS = 4
REPEATS = 3
MICRO_BATCHES = 30
ROWS_A_MICRO_BATCH = 1_000
DEADLINE_S = 300


def rows(spark: SparkSession) -> DataFrame:
    """Make rows of about 100 bytes, whose making costs little beside their writing."""
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "cast(cast(id as string) as binary) as key",
        "cast(concat(cast(id as string), repeat('x', 80)) as binary) as value",
    )


def in_turn(works: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Do each work once to warm up, then all in turn, and give the median of what each returns."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(REPEATS + 1):
        for name, work in works.items():
            figure = work()
            if number:
                taken[name].append(figure)
    return {name: statistics.median(figures) for name, figures in taken.items()}


def rows_per_second(action: Callable[[], Any]) -> float:
    """Do something with all rows and return thousand rows a second."""
    started = time.perf_counter()
    action()
    return ROWS / 1e3 / (time.perf_counter() - started)


def sinks(spark: SparkSession, address: str, formats: list[str]) -> dict[str, float]:
    """Write all rows with each sink."""

    def write(kind: str) -> float:
        writer = rows(spark).write.format(kind).mode("append")
        return rows_per_second(writer.option("kafka.bootstrap.servers", address).option("topic", f"to-{kind}").save)

    return in_turn({kind: lambda kind=kind: write(kind) for kind in formats})  # type: ignore[misc]


def sources(spark: SparkSession, address: str, formats: list[str]) -> dict[str, float]:
    """Read all rows with each source."""
    rows(spark).write.format(OURS).option("kafka.bootstrap.servers", address).option("topic", "from").mode(
        "append"
    ).save()

    def read(kind: str) -> float:
        reader = spark.read.format(kind).option("kafka.bootstrap.servers", address).option("subscribe", "from")
        frame = reader.option("kafka.isolation.level", "read_committed").load()
        return rows_per_second(frame.write.format("noop").mode("overwrite").save)

    return in_turn({kind: lambda kind=kind: read(kind) for kind in formats})  # type: ignore[misc]


def micro_batches(spark: SparkSession, address: str, formats: list[str]) -> dict[str, float]:
    """Run a stream of small micro-batches into each sink and give the median ms of writing and committing one."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(2 * MICRO_BATCHES))

    def stream(kind: str) -> float:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_A_MICRO_BATCH)
        frame = source.option("numPartitions", 2).load().selectExpr("cast(value as string) as value")
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = frame.writeStream.format(kind).option("checkpointLocation", checkpoint)
            query = writer.option("kafka.bootstrap.servers", address).option("topic", f"to-{kind}").start()
            deadline = time.monotonic() + DEADLINE_S
            while len(query.recentProgress) < MICRO_BATCHES and time.monotonic() < deadline:
                assert not query.exception()
                query.awaitTermination(1)
            query.stop()
            # The first ones start workers and load code.
            return statistics.median(each["durationMs"]["addBatch"] for each in query.recentProgress[5:])

    return in_turn({kind: lambda kind=kind: stream(kind) for kind in formats})  # type: ignore[misc]


@contextmanager
def broker() -> Iterator[tuple[str, str]]:
    """Run Apache Kafka, or the embedded broker where that is not to be had, and give its name and address."""
    settings = {"transaction.max.timeout.ms": "900000"}
    try:
        with apache_kafka(settings) as node:
            yield "Apache Kafka", node.bootstrap_servers
    except Unavailable as problem:
        print(problem)
        with EmbeddedBroker(config=settings) as embedded:
            yield "broker_core in memory", embedded.bootstrap_servers


def show(what: str, figures: Mapping[str, float], peers: Mapping[str, str]) -> None:
    """Print the figures of one measurement and ours as a ratio of each peer's."""
    line = ", ".join(f"{name} {figure:.0f}" for name, figure in figures.items())
    ratios = ", ".join(f"{figures[OURS] / figures[peer]:.2f} of {word}"
                       for peer, word in peers.items() if peer in figures)  # fmt: skip
    print(f"{what}: {line}; {OURS} is {ratios or 'alone'}")


def main() -> None:
    """Measure and print."""
    os.environ.update(worker_environment())
    try:
        sparks_own = spark_kafka_settings()
    except Unavailable as problem:
        print(f"Spark's own is missing: {problem}")
        sparks_own = {}
    spark = build_session("bench", sparks_own | {"spark.ui.showConsoleProgress": "false"})
    # A stream that is stopped in mid-work says so in many lines.
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NullSource)
    known = [SPARKS] if sparks_own else []
    with broker() as (name, address):
        print(f"Against {name}: {ROWS:,} rows of 100 B, {PARTITIONS} partitions, the median of {REPEATS} runs in turn")
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (f"to-{OURS}", f"to-{SPARKS}", "from")]
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)
        peers = {NULL_FORMAT: "a sink that does nothing", SPARKS: "Spark's own"}
        show("sink, thousand rows/s", sinks(spark, address, [OURS, NULL_FORMAT, *known]), peers)
        show("source, thousand rows/s", sources(spark, address, [OURS, *known]), peers)
        small = micro_batches(spark, address, [OURS, NULL_FORMAT, *known])
        show(f"micro-batch of {ROWS_A_MICRO_BATCH} rows, ms", small, peers)
        print(f"a micro-batch takes {small[OURS] - small[NULL_FORMAT]:.0f} ms more than with a sink that does nothing")
    spark.stop()


if __name__ == "__main__":
    main()
