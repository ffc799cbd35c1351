"""Measure how many rows a second source and sink transfer, and what many small tasks cost.

Besides the wall time, the output has the processor time of Spark's processes, including Python workers, and that of the
broker. Where broker and Spark share the cores, only the first compares the formats themselves.
"""

import itertools
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame

from spark_eos import place_by_partition
from tests.benchmarks.null_sink import NULL_FORMAT
from tests.benchmarks.null_source import NULL_SOURCE_FORMAT, NullSource
from tests.benchmarks.spark_bench import DEADLINE_S, OURS, PLACED, Bench, in_turn
from tests.support.processes import Process, ProcessorWatch, Ticks, ticks_of_tree
from tests.support.waiting import wait_until

SPARK, JVM, BROKER = "Spark's processes", "Spark's JVM alone", "the broker"
LOOK_EVERY_S = 0.5
# A hundred processes, each with a tick too many.
TICKS_S = 1.0
# As many tasks as a small cluster would run, on two cores.
TASKS = 4
PARTITION_COUNTS = (4, 300)
RECORD_BYTES = (100, 10_000)
CODECS = ("none", "zstd")
# Many small tasks: tasks, rows of each, partitions they write to.
SMALL_TASKS = ((200, 100, 4), (20, 100, 100))
# Many tasks with keys, to many partitions: tasks, rows of each, partitions.
MANY_PARTITIONS = ((20, 1_000, 100), (100, 1_000, 100), (200, 1_000, 1_000))


def rows(bench: Bench, count: int, tasks: int, size: int = 100) -> DataFrame:
    """Make rows of about `size` bytes, which cost little to make compared to writing them; zstd halves them."""
    text = f"concat(cast(id as string), repeat(sha2(cast(id as string), 256), {size // 128}), repeat('x', {size // 2}))"
    return bench.spark.range(0, count, 1, tasks).selectExpr(
        "cast(cast(id as string) as binary) as key", f"cast(left({text}, {size - 10}) as binary) as value"
    )


def timed(action: Callable[[], Any]) -> float:
    """Run a function and return how many seconds it took."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def writing(bench: Bench, frame: DataFrame, topic: str) -> Callable[[str], float]:
    """Return a function that writes a frame with one format and returns the seconds it took."""
    return lambda kind: timed(lambda: bench.write(frame, kind, topic))


@contextmanager
def looking(watches: Collection[ProcessorWatch]) -> Iterator[None]:
    """Look at processes often during the block: some end in it."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for watch in watches:
                watch.look()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield
    finally:
        ended.set()
        looker.join()


def is_possible(busy_s: float, passed_s: float) -> bool:
    """Return whether processes can have used so much processor time; the kernel counts in ticks of each process."""
    return 0 < busy_s <= (os.cpu_count() or 1) * (passed_s + TICKS_S)


def ticks_of_root(root: int) -> dict[Process, Ticks]:
    """Return the processor time of a process without its descendants."""
    return {process: Ticks(ticks.own, 0) for process, ticks in ticks_of_tree(root).items() if process.pid == root}


def compare(bench: Bench, what: str, names: list[str], work: Callable[[str], float], count: int) -> dict[str, float]:
    """Do the work under each name in turn; print the processor time for a million rows and return the wall times.

    What Spark's processes use besides its JVM is used by Python. The broker's time is printed where it has a separate
    process, that is for Apache Kafka.
    """
    jvm = bench.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    processes = {SPARK: jvm, JVM: jvm, BROKER: bench.broker.process}
    used: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    untrue = set[str]()

    def watched(name: str) -> float:
        watches = {
            whose: ProcessorWatch(process, ticks_of_root if whose == JVM else None)
            for whose, process in processes.items()
            if process is not None
        }
        with looking(watches.values()):
            seconds = work(name)
        for whose, watch in watches.items():
            if whose == BROKER and name in (NULL_FORMAT, NULL_SOURCE_FORMAT):
                continue
            used[whose][name].append(watch.look())
            if not is_possible(used[whose][name][-1], seconds):
                untrue.add(whose)
        return seconds

    taken = in_turn(names, watched, bench.arguments.repeats)
    for whose, seconds in used.items():
        if whose in untrue:
            print(
                f"[{bench.name}] {what}, processor time of {whose}: not known, as the accounts of processes are wrong"
            )
            continue
        # The first run of each is a warm-up.
        million = {name: statistics.median(each[1:]) * 1e6 / count for name, each in seconds.items()}
        bench.show(f"{what}, processor time of {whose}, s per million rows", million, digits=2)
    return taken


def measure_sink(bench: Bench) -> None:
    """Write with each sink."""
    frame, count = rows(bench, bench.arguments.rows, TASKS), bench.arguments.rows
    for partition_count in PARTITION_COUNTS:
        write = writing(bench, frame, bench.create_topic(f"sink-{partition_count}", partition_count))
        what = f"sink, {partition_count} partitions"
        seconds = compare(bench, what, bench.formats(OURS, NULL_FORMAT), write, count)
        bench.show(f"{what}, thousand rows of 100 B/s", rates(seconds, count))


def measure_tasks(bench: Bench) -> None:
    """Write few rows in many tasks with each sink."""
    for tasks, count, partition_count in SMALL_TASKS:
        topic = bench.create_topic(f"tasks-{partition_count}", partition_count)
        write = writing(bench, rows(bench, tasks * count, tasks), topic)
        what = f"{tasks} tasks of {count} rows to {partition_count} partitions"
        seconds = compare(bench, what, bench.formats(OURS, NULL_FORMAT), write, tasks * count)
        bench.show(f"{what}, s", seconds, digits=2)


def measure_placing(bench: Bench) -> None:
    """Write rows with keys from many tasks to many partitions, as they are and placed by partition."""
    for tasks, count, partition_count in MANY_PARTITIONS:
        topic = bench.create_topic(f"placing-{tasks}-{partition_count}", partition_count)
        frame, markers = rows(bench, tasks * count, tasks), dict[str, int]()
        kafka: Any = {"kafka.bootstrap.servers": bench.broker.address, "topic": topic}
        frames = {OURS: frame, PLACED: place_by_partition(frame, **kafka)}

        def write(name: str, topic: str = topic, frames: Any = frames, markers: Any = markers) -> float:
            before = end_of(bench, topic)
            seconds = timed(lambda: bench.write(frames[name], OURS, topic))
            markers[name] = end_of(bench, topic) - before
            return seconds

        what = f"{tasks} tasks of {count:,} rows with keys to {partition_count:,} partitions"
        seconds = compare(bench, what, list(frames), write, tasks * count)
        bench.show(f"{what}, s", seconds, digits=2)
        bench.show(f"{what}, markers", {name: end - tasks * count for name, end in markers.items()})


def end_of(bench: Bench, topic: str) -> int:
    """Return the sum of the partitions' end offsets when all markers are written: markers have offsets as records."""
    admin = AdminClient({"bootstrap.servers": bench.broker.address, "log_level": 0})
    numbers = admin.list_topics(topic, DEADLINE_S).topics[topic].partitions

    def sum_of_ends(level: IsolationLevel) -> int:
        latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
        ends = admin.list_offsets(latest, isolation_level=level)
        return sum(each.result(DEADLINE_S).offset for each in ends.values())

    def sums() -> list[int]:
        try:
            stable, end = map(sum_of_ends, (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED))
        except KafkaException:
            # A partition that was just created has no leader yet.
            return []
        return [end] if stable == end else []

    [end] = wait_until(sums, "no transaction is open", deadline_s=DEADLINE_S)
    return end


def rates(seconds: Mapping[str, float], count: int) -> dict[str, float]:
    """Convert the seconds for so many rows into thousand rows a second."""
    return {name: count / 1e3 / taken for name, taken in seconds.items()}


def measure_source(bench: Bench) -> None:
    """Read the records of our sink with each source."""
    bench.spark.dataSource.register(NullSource)
    for partition_count, size, codec in itertools.product(PARTITION_COUNTS, RECORD_BYTES, CODECS):
        count = bench.arguments.rows if size < 1_000 else bench.arguments.rows // 40
        topic = bench.create_topic(f"from-{partition_count}-{size}-{codec}", partition_count)
        rows(bench, count, TASKS, size).write.format(OURS).mode("append").options(
            **{"kafka.bootstrap.servers": bench.broker.address, "topic": topic, "compression.type": codec}
        ).save()
        what = f"source, {partition_count} partitions, {codec}, rows of {size:,} B"
        read = reading(bench, topic, count, size, partition_count)
        seconds = compare(bench, what, bench.formats(OURS, NULL_SOURCE_FORMAT), read, count)
        bench.show(f"{what}, thousand rows/s", rates(seconds, count), digits=1)


def reading(bench: Bench, topic: str, count: int, size: int, partition_count: int) -> Callable[[str], float]:
    """Return a function that reads a topic to its end with one format, or as many ready rows; it returns seconds."""

    def read(kind: str) -> float:
        options: dict[str, Any] = {
            "kafka.bootstrap.servers": bench.broker.address,
            "subscribe": topic,
            "kafka.isolation.level": "read_committed",
        }
        if kind == NULL_SOURCE_FORMAT:
            options = {"rows": count, "recordBytes": size, "partitions": partition_count}
        frame = bench.spark.read.format(kind).options(**options).load()
        return timed(frame.write.format("noop").mode("overwrite").save)

    return read
