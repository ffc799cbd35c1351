"""Run the sink at the size of large clusters, without Spark: `python -m tests.benchmarks.large_runs --what tasks`.

This process calls the sink's writers as PySpark does, as the driver and as one worker that runs every task: the worst
case for what grows in a worker. The broker is another process, with its logs on disk. After each phase a line has its
duration, the requests it sent (`broker_core` counts them), and what has grown: transactional ids and sockets, memory of
both processes, bytes of the decision topic. `--scale 0.1` makes every number ten times smaller.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.taskcontext import TaskContext

from spark_eos.client.inspection import list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import DEFAULT_DECISION_TOPIC
from spark_eos.sink.messages import TaskMessage
from spark_eos.sink.spark_writers import StreamWriter
from tests.benchmarks.spark_bench import create_topic
from tests.support.apache_kafka import apache_kafka, free_ports
from tests.support.memory import resident_mib
from tests.support.waiting import wait_until

# A node whose heap is large enough for these runs.
_APACHE_JVM = ("-Xmx2g", "-XX:+UseSerialGC")
_COUNT = re.compile(r'^kafka_network_requestmetrics_totaltimems_count\{request="(\w+)"\} ([\d.e+]+)$', re.MULTILINE)


@dataclass
class Scene:
    """A broker in another process, and the last measurements of it and of this process."""

    address: str
    process_id: int
    folder: Path
    metrics_url: str | None
    requests: Counter[str] = field(default_factory=Counter)

    def request_counts(self) -> Counter[str]:
        """Count the requests answered so far, by name; Apache Kafka's are not counted."""
        if self.metrics_url is None:
            return Counter()
        with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
            return Counter({name: round(float(count)) for name, count in _COUNT.findall(answer.read().decode())})

    def phase(self, name: str, work: Callable[[], Any]) -> Any:
        """Run one part of a run and print its duration and what has grown."""
        before = self.request_counts()
        started, own = time.perf_counter(), time.process_time()
        result = work()
        taken, own = time.perf_counter() - started, time.process_time() - own
        sent = {key: count for key, count in (self.request_counts() - before).items() if count}
        print(f"  {name}: {taken:.2f} s, {own:.2f} s of processor time in this process", flush=True)
        if sent:
            parts = ", ".join(f"{key} {count:,}" for key, count in sorted(sent.items(), key=lambda each: -each[1]))
            print(f"    requests {sum(sent.values()):,}: {parts}", flush=True)
        print(f"    {self.sizes()}", flush=True)
        return result

    def sizes(self) -> str:
        """Return what may have grown."""
        with KafkaClient(ClientOptions((self.address,))) as client:
            ids = len(list_transactions(client))
        logs = [
            path.stat().st_size
            for folder in self.folder.glob(f"{DEFAULT_DECISION_TOPIC}-*")
            for path in folder.glob("*.log")
        ]
        sockets, broker_sockets = socket_count("self"), socket_count(self.process_id)
        return (
            f"now: {ids:,} transactional ids; {sockets} sockets here, {broker_sockets} in the broker; "
            f"{resident_mib('VmRSS'):.0f} MiB here, {resident_mib('VmRSS', self.process_id):.0f} in the broker; "
            f"decision topic {sum(logs):,} bytes"
        )


def socket_count(process_id: int | str) -> int:
    """Count the open sockets of a process."""
    count = 0
    for path in (Path("/proc") / str(process_id) / "fd").iterdir():
        try:
            count += str(path.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


@contextmanager
def open_scene(broker: str) -> Iterator[Scene]:
    """Run a broker with its logs in a separate folder."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="large-runs-")))
        if broker == "apache":
            settings = {"transaction.max.timeout.ms": "900000"}
            node = stack.enter_context(apache_kafka(settings, folder, jvm=_APACHE_JVM))
            yield Scene(node.bootstrap_servers, node.process.pid, node.data_folder, None)
            return
        [port] = free_ports(1)
        # Apache Kafka does not sync before it responds either.
        (folder / "broker.properties").write_text("log.flush.before.ack=false\ntransaction.max.timeout.ms=900000\n")
        command = [
            sys.executable,
            "-m",
            "broker_core",
            "--port",
            "0",
            "--log-level",
            "ERROR",
            "--metrics-port",
            str(port),
            "--config",
            str(folder / "broker.properties"),
            "--data-dir",
            str(folder / "logs"),
        ]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        assert process.stdout is not None
        address = process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0].rstrip(",;")
        scene = Scene(address, process.pid, folder / "logs", f"http://127.0.0.1:{port}/metrics")
        wait_until(lambda: socket_count(process.pid), "the broker has opened its ports")
        yield scene


@dataclass
class Query:
    """A streaming query as the sink sees it: new writers for each micro-batch, tasks with Spark's properties."""

    address: str
    options: Mapping[str, str]
    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    _names: Sequence[str] = ("value",)

    def micro_batch(self, number: int, rows: Sequence[pa.RecordBatch]) -> None:
        """Write one micro-batch, of one task for each batch of rows."""
        self.commit(number, self.prepare(number, rows))

    def prepare(self, number: int, rows: Sequence[pa.RecordBatch]) -> list[TaskMessage]:
        """Run the tasks."""
        self._names = rows[0].schema.names
        writer = self._writer()
        messages = []
        for split, batch in enumerate(rows):
            TaskContext._setTaskContext(_context(self, number, split))
            messages.append(writer.write(iter([batch])))
        TaskContext._setTaskContext(None)
        return messages  # type: ignore[return-value]

    def commit(self, number: int, messages: Sequence[TaskMessage]) -> None:
        """Commit as Spark's driver does when all tasks have ended."""
        self._writer().commit(messages, number)

    def _writer(self) -> StreamWriter:
        columns = StructType([StructField(name, StringType()) for name in self._names])
        options = {"kafka.bootstrap.servers": self.address, **self.options}
        return StreamWriter({key.lower(): value for key, value in options.items()}, columns, False)


def _context(query: Query, micro_batch: int, split: int) -> TaskContext:
    """Make the context that Spark gives a task."""
    context = TaskContext()
    context._stageId, context._partitionId, context._attemptNumber = micro_batch, split, 0
    context._localProperties = {
        "sql.streaming.queryId": query.query,
        "spark.jobGroup.id": query.run,
        "streaming.sql.batchId": str(micro_batch),
    }
    return context


def rows(count: int, *, keys: bool = False, topics: Sequence[str] = ()) -> pa.RecordBatch:
    """Make rows of about 50 bytes; spread over partitions by their keys, and over topics in turn."""
    columns: dict[str, Any] = {"value": pa.array([f"{number:050d}" for number in range(count)])}
    if keys:
        columns["key"] = pa.array([str(number) for number in range(count)])
    if topics:
        columns["topic"] = pa.array([topics[number % len(topics)] for number in range(count)])
    return pa.record_batch(columns)


def tasks(scene: Scene, scale: float) -> None:
    """Write 5,000 tasks of 10 rows in one micro-batch, twice."""
    count = round(5_000 * scale)
    create_topic(scene.address, "tasks", 4)
    query = Query(scene.address, {"topic": "tasks"})
    for number in range(2):
        messages = scene.phase(
            f"micro-batch {number}: {count:,} tasks prepared", partial(query.prepare, number, [rows(10)] * count)
        )
        scene.phase(f"micro-batch {number}: committed", partial(query.commit, number, messages))


def partitions(scene: Scene, scale: float) -> None:
    """Write to 5,000 partitions."""
    count = round(5_000 * scale)
    create_topic(scene.address, "partitions", count)
    query = Query(scene.address, {"topic": "partitions"})
    for number in range(2):
        batches = [rows(20 * count, keys=True)] * 4
        scene.phase(
            f"micro-batch {number}: 4 tasks to {count:,} partitions", partial(query.micro_batch, number, batches)
        )


def topics(scene: Scene, scale: float) -> None:
    """Write to 1,000 topics by the column."""
    names = [f"topic-{number}" for number in range(round(1_000 * scale))]
    for name in names:
        create_topic(scene.address, name, 1)
    query = Query(scene.address, {})
    for number in range(2):
        batches = [rows(10 * len(names), topics=names)] * 4
        scene.phase(
            f"micro-batch {number}: 4 tasks to {len(names):,} topics", partial(query.micro_batch, number, batches)
        )


def queries(scene: Scene, scale: float) -> None:
    """Run 500 queries in one session, a micro-batch of each in turn."""
    create_topic(scene.address, "queries", 4)
    running = [Query(scene.address, {"topic": "queries"}) for _ in range(round(500 * scale))]

    def go_round(number: int) -> None:
        for query in running:
            query.micro_batch(number, [rows(10)] * 2)

    for number in range(3):
        scene.phase(f"round {number}: {len(running)} queries of 2 tasks", partial(go_round, number))


def micro_batches(scene: Scene, scale: float) -> None:
    """Run 10,000 micro-batches of 2 tasks in a row."""
    create_topic(scene.address, "micro-batches", 4)
    query, parts = Query(scene.address, {"topic": "micro-batches"}), 5
    count = round(10_000 * scale / parts)

    def go_on(first: int) -> None:
        for number in range(first, first + count):
            query.micro_batch(number, [rows(10)] * 2)

    for part in range(parts):
        scene.phase(f"micro-batches {part * count:,} to {(part + 1) * count - 1:,}", partial(go_on, part * count))


def decision(scene: Scene, scale: float) -> None:
    """Decide 2,000 tasks that write to 500 partitions each."""
    task_count, count = round(2_000 * scale), max(4, round(500 * scale))
    create_topic(scene.address, "decision", count)
    query = Query(scene.address, {"topic": "decision"})
    batch = rows(6 * count, keys=True)
    messages = scene.phase(
        f"{task_count:,} tasks to {count:,} partitions prepared", lambda: query.prepare(0, [batch] * task_count)
    )
    scene.phase("committed", lambda: query.commit(0, messages))
    scene.phase("the next micro-batch, of 2 tasks", lambda: query.micro_batch(1, [batch] * 2))


RUNS: Mapping[str, Callable[[Scene, float], None]] = {
    "tasks": tasks,
    "partitions": partitions,
    "topics": topics,
    "queries": queries,
    "micro-batches": micro_batches,
    "decision": decision,
}


def main() -> None:
    """Run the chosen runs, each with its own broker."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.large_runs")
    parser.add_argument("--what", action="append", choices=list(RUNS), help="may be repeated; default: all")
    parser.add_argument("--broker", choices=["broker_core", "apache"], default="broker_core")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of every number; default: 1")
    arguments = parser.parse_args()
    # Spark's default: a worker is kept for further tasks.
    os.environ["SPARK_REUSE_WORKER"] = "1"
    chosen = arguments.what or list(RUNS)
    if len(chosen) > 1:
        # One process for each run: what a run has opened is not counted in the next.
        for what in chosen:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tests.benchmarks.large_runs",
                    "--what",
                    what,
                    "--broker",
                    arguments.broker,
                    "--scale",
                    str(arguments.scale),
                ],
                check=False,
            )
        return
    for what in chosen:
        print(
            f"{what}: {(RUNS[what].__doc__ or '').splitlines()[0]} ({arguments.broker}, scale {arguments.scale:g})",
            flush=True,
        )
        try:
            with open_scene(arguments.broker) as scene:
                RUNS[what](scene, arguments.scale)
        except Exception as error:
            print(f"  FAILED: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
