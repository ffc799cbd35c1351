"""Measure what the source costs its process without Spark, beside a peer that has its Arrow batches ready.

`python -m tests.benchmarks.bench_source [partitions ...]`

The figure is the processor time of this process, including the kernel's; the broker is another process. Both sides
write the output of Spark's worker, an Arrow stream for each task, to a sink that drops it. The peer has its batches in
memory, so the difference is the cost of fetching, decoding and selecting the visible records.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer

from broker_core import EmbeddedBroker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.options.source import SourceOptions, batch_options
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.planner import Planner
from spark_eos.source.range_reader import read_range
from spark_eos.source.schema import arrow_schema

REPEATS: Final = 3
DEADLINE_SECONDS: Final = 120
# Name, rows, bytes of a value, codec.
KINDS: Final = (
    ("100 B plain", 1_000_000, 90, "none"),
    ("100 B zstd", 1_000_000, 90, "zstd"),
    ("10 kB plain", 20_000, 10_000, "none"),
    ("10 kB zstd", 20_000, 10_000, "zstd"),
)


class Nowhere:
    """A file that counts the bytes written to it and drops them."""

    closed = False

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        """Count the bytes."""
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing."""


def _serve(pipe: Connection, partitions: int) -> None:
    with EmbeddedBroker(topics={name: partitions for name, *_ in _topics()}) as broker:
        pipe.send(broker.bootstrap_servers)
        pipe.recv()


def _topics() -> Iterator[tuple[str, int, int, str]]:
    for name, rows, size_bytes, codec in KINDS:
        yield name.replace(" ", "-"), rows, size_bytes, codec


@contextmanager
def broker(partitions: int) -> Iterator[str]:
    """Run a broker in a separate process and yield its address."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve, args=(theirs, partitions), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(DEADLINE_SECONDS)


def fill(address: str, topic: str, partitions: int, rows: int, size_bytes: int, codec: str) -> None:
    """Write rows with values that compress about as well as logs do."""
    producer = Producer({
        "bootstrap.servers": address, "compression.type": codec, "linger.ms": 200, "batch.size": 1_000_000,
        "queue.buffering.max.messages": 3_000_000, "queue.buffering.max.kbytes": 2_000_000,
    })  # fmt: skip
    filler = "".join(f"{number * 7919:x} user logged in at " for number in range(1 + size_bytes // 20))
    for number in range(rows):
        start = number % 17
        value = f"{number}:{filler[start : start + size_bytes]}"[:size_bytes]
        producer.produce(topic, value, str(number), partition=number % partitions)
        if number % 50_000 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_SECONDS) == 0


def hand_over(tasks: Iterable[Iterable[pa.RecordBatch]]) -> int:
    """Write the batches of each task as one Arrow stream, as Spark's worker does."""
    rows = 0
    for task in tasks:
        writer = None
        for batch in task:
            writer = writer or pa.RecordBatchStreamWriter(Nowhere(), batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
    return rows


def cost(work: Callable[[], int]) -> float:
    """Return the least processor time of some runs, in seconds for a million rows."""
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        rows = work()
        seconds.append((time.process_time() - started) / rows * 1e6)
    return min(seconds)


def plan(address: str, topic: str) -> tuple[list[OffsetRange], SourceOptions]:
    """Plan all of a topic."""
    options = batch_options({"kafka.bootstrap.servers": address, "subscribe": topic})
    with KafkaClient(options.client) as client:
        planner = Planner(OffsetLookup(client), options)
        return planner.plan(planner.starting_offsets(), planner.ending_offsets()), options


def main() -> None:
    """Measure and print."""
    for partitions in [int(each) for each in sys.argv[1:]] or [4, 300]:
        with broker(partitions) as address:
            for topic, rows, size_bytes, codec in _topics():
                fill(address, topic, partitions, rows, size_bytes, codec)
                pieces, options = plan(address, topic)
                ready = [list(read_range(piece, options)) for piece in pieces]
                batches = sum(map(len, ready))
                assert arrow_schema(False) == ready[0][0].schema
                source = cost(lambda: hand_over(read_range(piece, options) for piece in pieces))  # noqa: B023
                peer = cost(lambda: hand_over(ready))  # noqa: B023
                print(
                    f"{partitions} partitions, {topic}: source {source:.2f} s per million rows, ready batches "
                    f"{peer:.2f}, {batches} batches",
                    flush=True,
                )


if __name__ == "__main__":
    main()
