"""Rows go to the partitions that librdkafka chooses."""

import random
from typing import Final

import pyarrow as pa
from confluent_kafka import Message, Producer

from spark_eos.codec.partitioner import murmur2_partitions

KEY_COUNT: Final = 100_000


def test_rows_are_placed_as_librdkafka_places_them() -> None:
    """Compare 10⁵ keys of up to 40 bytes, including the empty key."""
    placed: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        placed[message.key()] = message.partition()

    chance = random.Random(7)
    keys = sorted({b"", *(chance.randbytes(chance.randrange(1, 41)) for _ in range(KEY_COUNT))})
    settings = {
        "test.mock.num.brokers": 1,
        "partitioner": "murmur2_random",
        "linger.ms": 50,
        "log_level": 0,
        "queue.buffering.max.messages": 2 * KEY_COUNT,
    }
    producer = Producer(settings)
    partition_count = len(producer.list_topics("placed", timeout=30).topics["placed"].partitions)
    for key in keys:
        producer.produce("placed", b"", key, on_delivery=delivered)
    assert producer.flush(120) == 0
    assert partition_count > 1
    assert len(keys) > 0.95 * KEY_COUNT
    assert set(placed) == set(keys)
    assert murmur2_partitions(pa.array(keys), partition_count).tolist() == [placed[key] for key in keys]
