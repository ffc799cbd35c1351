"""Topics with known contents for the source's tests, written with an independent client (confluent-kafka)."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.waiting import wait_until

DEADLINE_SECONDS = 30


def create_topic(
    address: str, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None
) -> str:
    """Create a topic with a unique name and wait until it exists."""
    topic = name or f"source-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=DEADLINE_SECONDS)[topic].result(DEADLINE_SECONDS)
    return topic


def delete_topic(address: str, topic: str) -> None:
    """Delete a topic and wait until the metadata does not have it."""
    # The name keeps a reference: the handle must outlive the request.
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic], operation_timeout=DEADLINE_SECONDS)[topic].result(DEADLINE_SECONDS)
    # Apache Kafka's controller answers before the brokers have applied its record.
    wait_until(lambda: topic not in admin.list_topics(timeout=DEADLINE_SECONDS).topics, f"{topic} is gone")


def add_partitions(address: str, topic: str, total: int) -> None:
    """Add partitions to a topic and wait until the metadata has them: librdkafka drops records for unknown ones."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(DEADLINE_SECONDS)

    def known() -> bool:
        return len(admin.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions) == total

    wait_until(known, f"{topic} has {total} partitions")


def delete_records(address: str, topic: str, before: int, partition: int = 0) -> None:
    """Raise the log start offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(DEADLINE_SECONDS)


def transactional_producer(address: str, **settings: Any) -> Producer:
    """Return a producer that is ready to begin a transaction."""
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": f"id-{uuid.uuid4().hex}", "linger.ms": 0} | settings
    )
    producer.init_transactions(DEADLINE_SECONDS)
    return producer


def send(producer: Producer, topic: str, values: Iterable[Any], *, partition: int = 0, **fields: Any) -> None:
    """Send values and wait until the broker has acknowledged them."""
    errors: list[Any] = []

    def note(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        encoded = value if value is None or isinstance(value, bytes) else str(value).encode()
        producer.produce(topic, encoded, partition=partition, on_delivery=note, **fields)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert errors == [], errors


def commit(producer: Producer, topic: str, values: Sequence[Any], **fields: Any) -> None:
    """Write values in one committed transaction."""
    producer.begin_transaction()
    send(producer, topic, values, **fields)
    producer.commit_transaction(DEADLINE_SECONDS)


def abort(producer: Producer, topic: str, values: Sequence[Any], **fields: Any) -> None:
    """Write values in one aborted transaction."""
    producer.begin_transaction()
    send(producer, topic, values, **fields)
    producer.abort_transaction(DEADLINE_SECONDS)


def send_plain(address: str, topic: str, values: Iterable[Any], *, partition: int = 0, settings: Any = None,
               **fields: Any) -> None:  # fmt: skip
    """Send values outside any transaction."""
    send(Producer({"bootstrap.servers": address} | (settings or {})), topic, values, partition=partition, **fields)


def read_committed(address: str, topic: str, partition: int, start: int, end: int) -> list[tuple[int, bytes | None]]:
    """Return the offsets and values in [start, end) that librdkafka reads, with its own filter of aborted records."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "judge", "isolation.level": "read_committed",
        "auto.offset.reset": "error", "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, start)])
    rows: list[tuple[int, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, "the judge got no answer"
            offset = message.offset()
            if message.error() is not None or offset is None or offset >= end:
                return rows
            rows.append((offset, message.value()))
    finally:
        consumer.close()
