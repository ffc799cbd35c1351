"""Two topics with a record for each second."""

import pytest
from confluent_kafka import Producer

from tests.support.spark_eos.source_data import create_topic

NOON_MS = 1_600_000_000_000
RECORDS = 200
VALUE = b"v" * 1_000


@pytest.fixture(scope="module")
def topics(kafka_address: str) -> tuple[str, str]:
    """Return two topics of two partitions with 200 kB in each, a record each second from noon, in small batches."""
    made = create_topic(kafka_address, 2), create_topic(kafka_address, 2)
    producer = Producer(
        {
            "bootstrap.servers": kafka_address,
            "batch.num.messages": 10,
            "linger.ms": 5,
            # Batches that are sent again must not be reordered.
            "enable.idempotence": True,
        }
    )
    for topic in made:
        for partition in (0, 1):
            for number in range(RECORDS):
                producer.produce(topic, VALUE, partition=partition, timestamp=NOON_MS + number * 1_000)
    assert producer.flush(60) == 0
    return made
