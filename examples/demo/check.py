"""The check of the demo's result with another client, and of the markers in the log."""

import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from broker_core import EmbeddedBroker

_PATIENCE_SECONDS = 30


def read_committed_counts(bootstrap_servers: str, topic: str) -> tuple[Counter[bytes], int]:
    """Sum the counts in the topic with a read_committed confluent-kafka consumer; return them and the row count."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo-check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    counts: Counter[bytes] = Counter()
    rows = 0
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        unfinished = set(partitions)
        while unfinished:
            messages = consumer.consume(10_000, timeout=0.5)
            if messages:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise TimeoutError(
                    f"partitions {sorted(unfinished)} of {topic} did not end within "
                    f"{_PATIENCE_SECONDS} s: is a transaction still open there?"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    counts[message.key()] += int(message.value())
                    rows += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return counts, rows


def count_transactions(kafka: EmbeddedBroker, topic: str) -> tuple[int, int]:
    """Count the transactions that the topic's log shows as committed and as aborted."""
    ended: dict[str, set[tuple[int, int]]] = {"COMMIT": set(), "ABORT": set()}
    for partition in range(kafka.topics[topic]):
        for record in kafka.records(topic, partition, control=True):
            if record.marker is not None:
                ended[record.marker].add((record.producer_id, record.producer_epoch))
    return len(ended["COMMIT"]), len(ended["ABORT"])
