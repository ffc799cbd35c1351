"""Short forms of confluent-kafka for the scripts: topics, transactional producers, and offsets that a node lists."""

import os

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

BOOTSTRAP = os.environ["BOOTSTRAP"]
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})
COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def create(topic: str, **settings: str) -> None:
    """Create a topic of one partition."""
    for answer in ADMIN.create_topics([NewTopic(topic, 1, 1, config=settings)]).values():
        answer.result()


def delete(topic: str) -> None:
    """Delete a topic."""
    for answer in ADMIN.delete_topics([topic]).values():
        answer.result()


def transactional(transactional_id: str) -> Producer:
    """Return a producer that can begin a transaction."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


def offset(topic: str, spec: OffsetSpec, isolation: IsolationLevel = COMMITTED) -> int:
    """Return the offset that the node lists for partition 0."""
    answers = ADMIN.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=isolation)
    return next(iter(answers.values())).result().offset


def start(topic: str) -> int:
    """Return the log start offset."""
    return offset(topic, OffsetSpec.earliest())


def stable(topic: str) -> int:
    """Return the last stable offset."""
    return offset(topic, OffsetSpec.latest())


def high(topic: str) -> int:
    """Return the high watermark."""
    return offset(topic, OffsetSpec.latest(), UNCOMMITTED)
