"""Measure the codec against confluent-kafka, in one process and one run: `python -m tests.benchmarks.bench_codec`.

Counted is the processor time of the calling thread, so that a busy machine changes little, and librdkafka's own
threads, which do its encoding, fetching and parsing, go free: the ratios flatter the peer. Its producing side is
`produce()` into a queue that is never sent; its consuming side is `consume()` from librdkafka's mock broker.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from broker_core.records.header import iter_headers
from spark_eos.codec.decode import decode_batches
from spark_eos.codec.encode import encode_batches, seal
from spark_eos.codec.partitioner import murmur2_partitions

# The mock broker keeps 5 MB of each of its topics' four partitions; this many rows fit.
ROWS = 150_000
PARTITIONS = 4
ARROW_BATCH_ROWS = 10_000
BATCH_BYTES = 1_000_000
BATCHES_A_FETCH = 8
REPEATS = 7
DEADLINE_SECONDS = 60.0
QUEUE = {"queue.buffering.max.messages": 10 * ROWS, "queue.buffering.max.kbytes": 2_000_000, "log_level": 0}


def random_column(generator: np.random.Generator, low: int, high: int) -> Any:
    """Make a column of printable values of `low` to `high` bytes."""
    offsets = np.zeros(ROWS + 1, np.int32)
    np.cumsum(generator.integers(low, high + 1, ROWS), out=offsets[1:])
    data = generator.integers(97, 123, offsets[-1]).astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def rate(work: Callable[[], object]) -> float:
    """Return the best of some runs, in million rows per second of processor time."""
    seconds = []
    for _ in range(REPEATS):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return ROWS / min(seconds) / 1e6


def encode(keys: Any, values: Any, stamps: Any) -> list[bytearray]:
    """Encode and seal every row, in Arrow batches of the size Spark hands over."""
    sealed = []
    for start in range(0, ROWS, ARROW_BATCH_ROWS):
        batches = encode_batches(
            key=keys.slice(start, ARROW_BATCH_ROWS),
            value=values.slice(start, ARROW_BATCH_ROWS),
            headers=None,
            timestamp_ms=stamps.slice(start, ARROW_BATCH_ROWS),
            max_batch_bytes=BATCH_BYTES,
        )
        sealed += [seal(batch, producer_id=1, producer_epoch=0, base_sequence=0) for batch in batches]
    return sealed


def decode(data: bytes) -> int:
    """Decode every batch, a few at a time as a fetch brings them; CRCs are checked."""
    spans = list(iter_headers(data))
    rows = 0
    for start in range(0, len(spans), BATCHES_A_FETCH):
        some = spans[start : start + BATCHES_A_FETCH]
        rows += decode_batches(data, some, include_headers=False, first_offset=0, end_offset=2**62).num_rows
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


def main() -> None:
    """Print rates and their ratios."""
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
    rates = {
        "encode and seal": rate(lambda: encode(keys, values, stamps)),
        "confluent produce()": rate(lambda: produce(key_list, value_list)),
        "decode": rate(lambda: decode(data)),
        "confluent consume()": rate(lambda: consume(f"{broker.host}:{broker.port}")),
        "murmur2": rate(lambda: murmur2_partitions(keys, 12)),
    }
    for name, found in rates.items():
        print(f"{name:20} {found:7.2f} M rows/s")
    print(f"encode / produce()   {rates['encode and seal'] / rates['confluent produce()']:7.1f}")
    print(f"decode / consume()   {rates['decode'] / rates['confluent consume()']:7.1f}")


if __name__ == "__main__":
    main()
