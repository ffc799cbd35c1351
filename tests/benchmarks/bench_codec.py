"""Measure the codec against confluent-kafka, in one process and one run: `python -m tests.benchmarks.bench_codec`.

The figures are processor time of the calling thread, so that a busy machine changes little. librdkafka's own threads,
which encode, fetch and parse, are not counted: the ratios favor the peer. Its producing side is `produce()` into a
queue that is never sent; its consuming side is `consume()` from librdkafka's mock broker. Each side of a ratio is the
best of some runs, and the two take turns, so that other load affects both.

Below that are the parts of a task's work on 4 MiB of rows, in milliseconds.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from broker_core.records.header import check_crcs, iter_headers
from spark_eos.codec.accumulator import RecordAccumulator
from spark_eos.codec.decode import decode_slabs
from spark_eos.codec.encode import encode_batches
from spark_eos.codec.encoded_batch import EncodedBatch, seal
from spark_eos.codec.partitioner import murmur2_partitions
from spark_eos.codec.row_checksum import hash_rows
from spark_eos.sink.task.partitioning import PlacedRows, place_rows

# The mock broker keeps 5 MB of each of its topics' four partitions; this many rows fit.
ROWS = 150_000
PARTITIONS = 4
ARROW_BATCH_ROWS = 10_000
BATCH_BYTES = 1_000_000
CHUNK_BYTES = 4 * 1024 * 1024
BATCHES_A_FETCH = 8
TURNS = 6
RUNS_A_TURN = 3
DEADLINE_SECONDS = 60.0
QUEUE = {"queue.buffering.max.messages": 10 * ROWS, "queue.buffering.max.kbytes": 2_000_000, "log_level": 0}


def random_column(generator: np.random.Generator, low: int, high: int) -> Any:
    """Make a column of printable values of `low` to `high` bytes."""
    offsets = np.zeros(ROWS + 1, np.int32)
    np.cumsum(generator.integers(low, high + 1, ROWS), out=offsets[1:])
    data = generator.integers(97, 123, offsets[-1]).astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def best_seconds(*works: Callable[[], object]) -> list[float]:
    """Return the processor time of each work: the best of some runs, in which they take turns.

    A turn is a few runs, since the first run after another work gets new memory from the system, which the others
    reuse.
    """
    best = [float("inf")] * len(works)
    for _ in range(TURNS):
        for index, work in enumerate(works):
            for _ in range(RUNS_A_TURN):
                started = time.thread_time()
                work()
                best[index] = min(best[index], time.thread_time() - started)
    return best


def encode(keys: Any, values: Any, stamps: Any) -> list[bytearray]:
    """Encode and seal every row, in Arrow batches of the size that Spark passes."""
    sealed = []
    for start in range(0, ROWS, ARROW_BATCH_ROWS):
        batches = encode_batches(
            key=keys.slice(start, ARROW_BATCH_ROWS),
            value=values.slice(start, ARROW_BATCH_ROWS),
            headers=None,
            timestamp_ms=stamps.slice(start, ARROW_BATCH_ROWS),
            max_batch_bytes=BATCH_BYTES,
        )
        sealed += seal_all(list(batches))
    return sealed


def decode(data: bytes) -> int:
    """Decode every batch, a few at a time as in a fetch response; CRCs are checked."""
    spans = list(iter_headers(data))
    check_crcs(data, spans)
    rows = 0
    for start in range(0, len(spans), BATCHES_A_FETCH):
        some = spans[start : start + BATCHES_A_FETCH]
        slabs = decode_slabs(data, some, include_headers=False, first_offset=0, end_offset=2**62)
        rows += sum(slab.num_rows for slab in slabs)
    assert rows == ROWS
    return rows


def produce(keys: list[bytes], values: list[bytes]) -> None:
    """Queue every row in a producer that never reaches a broker."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", **QUEUE})
    for key, value in zip(keys, values, strict=True):
        producer.produce("bench", value, key)
    producer.purge()


def consume(bootstrap: str) -> None:
    """Read every row, keys and values included."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 10, "log_level": 0})
    consumer.assign([TopicPartition("bench", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + DEADLINE_SECONDS
    left = ROWS
    while left > 0:
        assert time.monotonic() < deadline, f"{left} rows did not arrive"
        messages = consumer.consume(ARROW_BATCH_ROWS, 1.0)
        for message in messages:
            _ = message.key(), message.value()
        left -= len(messages)
    consumer.close()


def parts_of_a_task(keys: Any, values: Any, stamps: Any) -> None:
    """Print the cost of each step from 4 MiB of rows to sealed batches, by number of partitions."""
    count = CHUNK_BYTES * ROWS // (keys.nbytes + values.nbytes)
    rows = pa.record_batch({"key": keys.slice(0, count), "value": values.slice(0, count)})
    times = stamps.slice(0, count)
    [hashed] = best_seconds(lambda: hash_rows(key=rows["key"], value=rows["value"], timestamp_ms=times))
    print(f"{count} rows of 4 MiB: checksum {hashed * 1e3:5.2f} ms")
    for partitions in (4, 300, 5000):
        place = partial(
            place_rows,
            rows,
            topic="bench",
            partition_count=lambda _, count=partitions: count,
            named_count=lambda _, count=partitions: count,
            leaderless=lambda _: (),
            rows_per_run=ROWS,
            chance=random.Random(1),
        )
        ordered = place()
        batches = accumulate(ordered, times)
        placed, encoded, sealed = best_seconds(place, partial(accumulate, ordered, times), partial(seal_all, batches))
        print(
            f"{partitions:5} partitions: place {placed * 1e3:5.2f} ms, encode {encoded * 1e3:5.2f} ms, "
            f"seal {sealed * 1e3:5.2f} ms"
        )
    for few in (10, 160):
        encode_few = partial(
            encode_batches,
            key=rows["key"][:few],
            value=rows["value"][:few],
            headers=None,
            timestamp_ms=times[:few],
            max_batch_bytes=BATCH_BYTES,
        )
        [seconds] = best_seconds(lambda encode_few=encode_few: list(encode_few()))
        print(f"one call of {few:3} rows: encode {seconds * 1e3:5.2f} ms")


def accumulate(ordered: PlacedRows, times: Any) -> list[EncodedBatch]:
    """Encode rows as a task does, and close the open batches at the end."""
    batches: RecordAccumulator[Any] = RecordAccumulator(
        max_batch_bytes=lambda _: BATCH_BYTES, max_open_bytes=2 * CHUNK_BYTES
    )
    added = batches.add(
        ordered.topic_partitions,
        ordered.boundaries,
        key=ordered.rows["key"],
        value=ordered.rows["value"],
        headers=None,
        timestamp_ms=times,
    )
    return [batch for found in (added, batches.close()) for _, batch in found]


def seal_all(batches: Sequence[EncodedBatch]) -> list[bytearray]:
    """Number the batches and compute their CRCs."""
    return [seal(batch, producer_id=1, producer_epoch=0, base_sequence=0) for batch in batches]


def main() -> None:
    """Print rates and their ratios, and the parts of a task's work."""
    generator = np.random.default_rng(1)
    keys, values = random_column(generator, 4, 12), random_column(generator, 60, 124)
    stamps = pa.array(1_700_000_000_000 + np.cumsum(generator.integers(0, 3, ROWS)))
    key_list, value_list = keys.to_pylist(), values.to_pylist()
    mock = Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0, **QUEUE})
    [broker] = mock.list_topics(timeout=10).brokers.values()
    for index, (key, value) in enumerate(zip(key_list, value_list, strict=True)):
        mock.produce("bench", value, key, partition=index % PARTITIONS)
    assert mock.flush(DEADLINE_SECONDS) == 0
    data = b"".join(encode(keys, values, stamps))
    encoded, produced = best_seconds(lambda: encode(keys, values, stamps), lambda: produce(key_list, value_list))
    decoded, consumed = best_seconds(lambda: decode(data), lambda: consume(f"{broker.host}:{broker.port}"))
    [placed] = best_seconds(lambda: murmur2_partitions(keys, 12))
    for name, seconds in (
        ("encode and seal", encoded),
        ("confluent produce()", produced),
        ("decode", decoded),
        ("confluent consume()", consumed),
        ("murmur2", placed),
    ):
        print(f"{name:20} {ROWS / seconds / 1e6:7.2f} M rows/s")
    print(f"encode / produce()   {produced / encoded:7.1f}")
    print(f"decode / consume()   {consumed / decoded:7.1f}")
    parts_of_a_task(keys, values, stamps)


if __name__ == "__main__":
    main()
