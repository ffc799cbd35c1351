"""Measure micro-batches of 2 tasks of 500 rows: the time of each sink, of our driver's steps, and our requests.

Also the time of the two checkpoint writes around each micro-batch with different settings.
"""

import re
import tempfile
import time
import urllib.request
from collections.abc import Mapping

from pyspark.sql.streaming.query import StreamingQuery

from tests.benchmarks.bare_commit import bare_commits
from tests.benchmarks.null_sink import NULL_FORMAT
from tests.benchmarks.spark_bench import DEADLINE_S, OURS, Bench, in_turn, median
from tests.support.apache_kafka import free_ports

TASKS, ROWS = 2, 1_000
# About what the decision about two tasks has.
DECISION_BYTES = 700
# The first ones start workers and load code.
WARM_UP = 5
_STEPS = re.compile(r"^eos_kafka_sink_(\w+)_ms(?:\{.*\})? ([\d.e+]+)$", re.MULTILINE)
# Steps of the driver's commit, one after the other, and one that is a part of the first. A steady micro-batch takes
# nothing over. The other gauges that end with _ms are ages.
_COMMIT, _VERIFY = ("decide", "complete", "sweep"), "verify"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
CHECKPOINT_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "Spark's default": {},
    "FileSystemBasedCheckpointFileManager": {_MANAGER: f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"},
}


def start(bench: Bench, kind: str, checkpoint: str, topic: str, **options: str) -> StreamingQuery:
    """Start an endless query whose micro-batches follow each other at once."""
    source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    frame = source.option("numPartitions", TASKS).load().selectExpr("cast(value as string) as value")
    writer = frame.writeStream.format(kind).option("checkpointLocation", checkpoint).options(**options)
    return writer.option("kafka.bootstrap.servers", bench.broker.address).option("topic", topic).start()


def wait_for(query: StreamingQuery, count: int) -> None:
    """Wait until so many micro-batches are done; polling only the last progress disturbs them least."""
    deadline = time.monotonic() + DEADLINE_S
    while newest(query) < count - 1:
        assert not query.exception()
        assert time.monotonic() < deadline, f"{count} micro-batches took more than {DEADLINE_S} s"
        query.awaitTermination(0.2)


def newest(query: StreamingQuery) -> int:
    """Return the number of the last micro-batch that is done, -1 for none."""
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def durations(bench: Bench, kind: str, topic: str) -> dict[str, float]:
    """Run one query and return the median ms of each part of its micro-batches."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = start(bench, kind, checkpoint, topic)
        wait_for(query, WARM_UP + bench.arguments.micro_batches)
        progress = query.recentProgress[WARM_UP:]
        query.stop()
    names = ("addBatch", "walCommit", "commitOffsets", "triggerExecution")
    return {name: median([each["durationMs"].get(name, 0) for each in progress]) for name in names}


def measure(bench: Bench) -> None:
    """Compare the sinks, then look into ours."""
    bench.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(2 * bench.arguments.micro_batches + 50))
    topic = bench.create_topic("small", 4)
    kinds = bench.formats(OURS, NULL_FORMAT)
    figures = in_turn(kinds, lambda kind: durations(bench, kind, topic)["addBatch"], bench.arguments.repeats)
    bench.show(f"micro-batch of {TASKS} x {ROWS // TASKS} rows, addBatch ms", figures)
    more = figures[OURS] - figures[NULL_FORMAT]
    print(f"[{bench.name}] micro-batch: {more:.0f} ms more than a Python sink that does nothing", flush=True)
    look_inside(bench, topic)


def look_inside(bench: Bench, topic: str) -> None:
    """Print the parts of the driver's commit from the sink's own gauges, and the requests of a steady micro-batch."""
    [port] = free_ports(1)
    steps: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as checkpoint:
        query = start(bench, OURS, checkpoint, topic, metricsPort=str(port))
        # By then our sink has described and opened what it keeps for the whole run.
        wait_for(query, 2 * WARM_UP)
        begin, before = newest(query), request_counts(bench)
        for number in range(bench.arguments.micro_batches):
            wait_for(query, begin + number + 2)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
                for name, value in _STEPS.findall(answer.read().decode()):
                    steps.setdefault(name, []).append(float(value))
        done, after = newest(query) - begin, request_counts(bench)
        query.stop()
    parts = {name: median(steps[name]) for name in _COMMIT if name in steps}
    line = ", ".join(f"{name} {figure:.0f}" for name, figure in parts.items())
    verify = median(steps[_VERIFY])
    line += f"; {verify:.0f} of decide are verify"
    print(f"[{bench.name}] the driver's commit, ms: {sum(parts.values()):.0f} ({line})", flush=True)
    rounds = WARM_UP + bench.arguments.micro_batches
    bare = bare_commits(bench.broker.address, topic, tasks=TASKS, decision_bytes=DECISION_BYTES, rounds=rounds)
    print(f"[{bench.name}] the same requests from a bare client, ms: {median(bare[WARM_UP:]):.0f}", flush=True)
    counts = {name: (count - before.get(name, 0)) / done for name, count in after.items()}
    line = ", ".join(f"{name} {count:.1f}" for name, count in sorted(counts.items(), key=lambda each: -each[1])
                     if count >= 0.05)  # fmt: skip
    if counts:
        print(
            f"[{bench.name}] requests per steady micro-batch of {TASKS} tasks: {sum(counts.values()):.1f} ({line})",
            flush=True,
        )


def request_counts(bench: Bench) -> dict[str, int]:
    """Count the requests that `broker_core` has answered, by name."""
    if bench.broker.embedded is None:
        return {}
    return {name: found.count for name, found in bench.broker.embedded.metrics.by_api.items()}


def measure_checkpoints(bench: Bench) -> None:
    """Print the times of the offset log and the commit log with different settings, and of the work between them."""
    topic = bench.create_topic("checkpoints", 4)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CHECKPOINT_SETTINGS}
    for number in range(bench.arguments.repeats + 1):
        for name, settings in CHECKPOINT_SETTINGS.items():
            for key, value in settings.items():
                bench.spark.conf.set(key, value)
            figures = durations(bench, NULL_FORMAT, topic)
            for key in settings:
                bench.spark.conf.unset(key)
            if number:
                found[name].append(figures)
    for name, rounds in found.items():
        line = ", ".join(f"{part} {median([each[part] for each in rounds]):.0f}" for part in rounds[0])
        print(f"[{bench.name}] checkpoint with {name}, ms: {line}", flush=True)
