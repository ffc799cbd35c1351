"""The way from a task's Arrow batches to encoded record batches for topic-partitions."""

import random
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.types import TopicPartition
from spark_eos.codec.accumulator import RecordAccumulator
from spark_eos.codec.encode import EncodedBatch
from spark_eos.sink import columns
from spark_eos.sink.content import RowCounter
from spark_eos.sink.placement import order_rows
from spark_eos.sink.ports import Cluster
from spark_eos.sink_options import SinkOptions

_USED_COLUMNS: Final = (
    columns.KEY, columns.VALUE, columns.TOPIC, columns.HEADERS, columns.PARTITION, columns.TIMESTAMP,
)
# Rows are gathered up to this much, since a Spark batch spread over many partitions makes small record batches. Arrays
# much larger than this are mapped and cleared anew for every chunk, and placing and encoding take a fifth more time.
CHUNK_BYTES: Final = 4 * 1024 * 1024


class Placer:
    """Turn chunks of rows into encoded batches for each topic-partition.

    What does not fill a batch waits here for more, up to half of `buffer.memory`; the other half is the producer's.
    """

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._counts: dict[str, int] = {}
        self._chance = random.Random()
        self._batches: RecordAccumulator[TopicPartition] = RecordAccumulator(
            max_batch_bytes=lambda topic_partition: options.batch_bytes,
            max_open_bytes=options.buffer_bytes // 2,
            compression=options.compression,
            level=options.compression_level,
        )
        self.counter = RowCounter(options.topic)
        self.size_bytes = 0

    def place(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, EncodedBatch]]:
        """Place a chunk of rows; they are encoded as the result is read, which gives the batches that are full."""
        self.size_bytes += rows.nbytes
        rows_per_run = self._options.batch_bytes * rows.num_rows // max(1, rows.nbytes)
        placed = order_rows(
            rows, topic=self._options.topic, partition_count=self._count,
            leaderless=self._cluster.leaderless_partitions, rows_per_run=rows_per_run, chance=self._chance,
        )
        ordered = placed.rows
        given = given_timestamps(ordered)
        self.counter.add(ordered, given)
        now_ms = time.time_ns() // 1_000_000
        return self._batches.add(
            placed.topic_partitions,
            placed.boundaries,
            key=columns.column_of(ordered, columns.KEY),
            value=ordered.column(columns.VALUE),
            headers=columns.column_of(ordered, columns.HEADERS),
            timestamp_ms=now_ms if given is None else pc.fill_null(given, now_ms),
        )

    def rest(self) -> Iterator[tuple[TopicPartition, EncodedBatch]]:
        """Give the batches that are not full, when there are no more rows."""
        return self._batches.close()

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._cluster.partition_count(topic)
        return self._counts[topic]


def gather(arrow_batches: Iterator[pa.RecordBatch], chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small Arrow batches and cut large ones to about `chunk_bytes`; drop columns nobody uses."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for whole in arrow_batches:
        for part in _cut(whole.select([name for name in _USED_COLUMNS if name in whole.schema.names]), chunk_bytes):
            if held and held_bytes + part.nbytes > chunk_bytes:
                yield _join(held)
                held, held_bytes = [], 0
            held.append(part)
            held_bytes += part.nbytes
    if held:
        yield _join(held)


def _cut(rows: pa.RecordBatch, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    step = max(1, rows.num_rows * chunk_bytes // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _join(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def given_timestamps(rows: pa.RecordBatch) -> pa.Array | None:
    """Give the times that the user gave, in milliseconds, null where there is none; None without such a column."""
    if columns.TIMESTAMP not in rows.schema.names:
        return None
    in_us = rows.column(columns.TIMESTAMP).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    # Rounded down, as Spark does it, also before 1970.
    return pa.array(pc.fill_null(in_us, 0).to_numpy(zero_copy_only=False) // 1000, mask=_is_null(in_us))


def _is_null(array: pa.Array) -> Any:
    return pc.is_null(array).to_numpy(zero_copy_only=False)
