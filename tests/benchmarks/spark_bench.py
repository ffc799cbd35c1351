"""What the measurements in Spark share: the setup of a session, its broker, and the comparison of results."""

import os
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from broker_core import EmbeddedBroker
from tests.benchmarks.null_sink import NULL_FORMAT, NullSource
from tests.benchmarks.null_source import NULL_SOURCE_FORMAT
from tests.support.apache_kafka import Unavailable, apache_kafka
from tests.support.spark_eos.spark_session import worker_environment
from tests.support.spark_kafka import spark_kafka_settings

OURS, PLACED, SPARKS = "eos-kafka", "placed", "kafka"
PEERS = {
    NULL_FORMAT: "a Python sink that does nothing",
    NULL_SOURCE_FORMAT: "a Python source of ready batches",
    SPARKS: "Spark's own",
    PLACED: "the rows placed by partition",
}
DEADLINE_S = 300
_SHOWN_CHARACTERS = 4_000
ROOT = Path(__file__).parents[2]
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
# How Spark is set up: pip's PySpark as it is; with the setting that docs/spark/latency.md recommends; and with what
# that page offers for the start of workers in addition.
SESSIONS: Mapping[str, Mapping[str, str]] = {"stock": {}, "unix": UNIX_SOCKETS, "tuned": UNIX_SOCKETS}


@dataclass(frozen=True)
class BenchBroker:
    """The broker of a benchmark.

    `embedded` is None for Apache Kafka, whose requests are not counted. `process` is None for `broker_core`, which has
    no separate process here.
    """

    address: str
    embedded: EmbeddedBroker | None = None
    process: int | None = None


@dataclass(frozen=True)
class Bench:
    """One session and one broker."""

    name: str
    spark: SparkSession
    broker: BenchBroker
    has_sparks_own: bool
    arguments: Namespace

    def formats(self, *ours: str) -> list[str]:
        """Return the formats, with Spark's own where it is available."""
        return [*ours, SPARKS] if self.has_sparks_own else list(ours)

    def create_topic(self, name: str, partition_count: int, **config: str) -> str:
        """Create a topic, replacing an existing one, and return its name; `a_b=c` stands for the setting `a.b=c`."""
        create_topic(self.broker.address, name, partition_count, **config)
        return name

    def write(self, frame: DataFrame, kind: str, topic: str) -> None:
        """Write all rows of a frame with one format."""
        writer = frame.write.format(kind).mode("append").option("kafka.bootstrap.servers", self.broker.address)
        writer.option("topic", topic).save()

    def show(self, what: str, figures: Mapping[str, float], *, digits: int = 0) -> None:
        """Print the figures of one measurement, and ours as a ratio of each peer's."""
        line = ", ".join(f"{name} {figure:,.{digits}f}" for name, figure in figures.items())
        ratios = ", ".join(f"{figures[OURS] / figures[peer]:.2f} of {word}"
                           for peer, word in PEERS.items() if figures.get(peer))  # fmt: skip
        print(f"[{self.name}] {what}: {line}; {OURS} is {ratios or 'alone'}", flush=True)


def create_topic(address: str, name: str, partition_count: int, **config: str) -> None:
    """Create a topic and wait until that is done."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partition_count, 1, config=settings)])[name].result(DEADLINE_S)


def in_turn(names: Sequence[str], work: Callable[[str], float], repeats: int) -> dict[str, float]:
    """Do the work under each name once to warm up, then under all in turn; return the median for each name."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats + 1):
        for name in names:
            figure = work(name)
            if number:
                taken[name].append(figure)
    return {name: statistics.median(figures) for name, figures in taken.items()}


def environment(session: str) -> dict[str, str]:
    """Return the environment variables of a session; only the tuned one has any."""
    if session == "tuned":
        return worker_environment()
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def open_session(session: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark in this process with default options, except those that suppress its output."""
    os.environ.update(environment(session))
    builder = SparkSession.builder.master("local[2]").appName("bench")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in {**quiet, **SESSIONS[session], **(more or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(NullSource)
    return spark


def sparks_own() -> dict[str, str]:
    """Return the settings for Spark's own format, none where it is not available."""
    try:
        return spark_kafka_settings()
    except Unavailable as problem:
        print(f"Spark's own is missing: {problem}")
        return {}


@contextmanager
def open_broker(kind: str) -> Iterator[BenchBroker]:
    """Run `broker_core` in memory or Apache Kafka."""
    settings = {"transaction.max.timeout.ms": "900000"}
    with ExitStack() as stack:
        if kind == "apache":
            node = stack.enter_context(apache_kafka(settings))
            yield BenchBroker(node.bootstrap_servers, process=node.process.pid)
            return
        embedded = stack.enter_context(EmbeddedBroker(config=settings))
        yield BenchBroker(embedded.bootstrap_servers, embedded)


@contextmanager
def open_bench(session: str, arguments: Namespace) -> Iterator[Bench]:
    """Start a broker and a session."""
    more = sparks_own()
    with open_broker(arguments.broker) as broker:
        spark = open_session(session, more)
        try:
            yield Bench(session, spark, broker, bool(more), arguments)
        finally:
            spark.stop()


def describe(arguments: Namespace) -> str:
    """Return the conditions of the figures, including other load of the machine."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"against {arguments.broker}, {os.cpu_count()} cores, load {load}, "
        f"each the median of {arguments.repeats} runs in turn"
    )


def run_quietly(command: Sequence[str], stdout: IO[str] | None = None) -> bool:
    """Run a process and return whether it succeeded; its stderr is shown only if it failed.

    Python workers whose query is stopped during a task write a traceback, and Spark a greeting.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        succeeded = subprocess.run(command, stdout=stdout, stderr=errors, check=False).returncode == 0
        if not succeeded:
            errors.seek(0)
            print(f"FAILED: {' '.join(command)}\n{errors.read()[-_SHOWN_CHARACTERS:]}", flush=True)
    return succeeded


def median(values: Sequence[Any]) -> float:
    """Return the median, 0 of nothing."""
    return float(statistics.median(values)) if values else 0.0
