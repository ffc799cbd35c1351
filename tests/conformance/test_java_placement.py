"""The partitions that Apache Kafka's Java producer chooses for keys; the sink must choose the same."""

import random

import pyarrow as pa
import pytest

from spark_eos.codec.partitioner import murmur2_partitions
from tests.support.clients import Kafka, make_consumer, make_topic
from tests.support.java_tools import java_tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("apache_asked_for")
KEY_COUNT = 100_000
PARTITIONS = 11
ALPHABET = "abcxyz019_-.:/ äß€é漢"


def test_keys_are_placed_as_by_the_java_client(kafka: Kafka):
    if kafka.name != "apache":
        pytest.skip("which broker it is does not matter: the client places the keys")
    chance = random.Random(11)
    keys = sorted({"".join(chance.choices(ALPHABET, k=chance.randrange(1, 24))) for _ in range(KEY_COUNT)})
    topic = make_topic(kafka, partitions=PARTITIONS)
    java_tool(
        "ConsoleProducer",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "--topic",
        topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=\t",
        lines="".join(f"{key}\tv\n" for key in keys),
    )
    placed = placements(kafka, topic, len(keys))
    assert len(keys) > 0.9 * KEY_COUNT
    assert murmur2_partitions(pa.array(keys), PARTITIONS).tolist() == [placed[key] for key in keys]


def placements(kafka: Kafka, topic: str, count: int) -> dict[str, int]:
    """Return the partition of each key."""
    consumer = make_consumer(kafka)
    placed: dict[str, int] = {}
    try:
        consumer.subscribe([topic])

        def all_read() -> bool:
            for message in consumer.consume(10_000, 1):
                if not message.error():
                    placed[message.key().decode()] = message.partition()
            return len(placed) >= count

        wait_until(all_read, f"{count} keys of {topic}")
    finally:
        consumer.close()
    return placed
