"""A session of librdkafka's clients for recordings: transactions, group members, and fetches that wait for records."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer

from broker_core import EmbeddedBroker
from tests.support.clients import DEADLINE_S, Kafka, make_member, make_transactional_producer, read_values, unique


class Names(NamedTuple):
    """The names that a session uses."""

    source: str
    target: str
    group: str
    transactional_id: str


def names() -> Names:
    """Return names that no other test uses."""
    return Names(*(unique(name) for name in ("in", "out", "group", "id")))


def commit_and_abort(kafka: Kafka, used: Names, protocol: str = "classic") -> list[bytes]:
    """Commit, abort and commit a transaction; read as a group member, and commit its position in a transaction."""
    producer = make_transactional_producer(kafka, used.transactional_id)
    ends = producer.commit_transaction, producer.abort_transaction, producer.commit_transaction
    for number, end in enumerate(ends):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(used.source, f"{number}-{part}", partition=0)
        producer.flush(DEADLINE_S)
        end(DEADLINE_S)
    consumer = make_member(kafka, used.group, protocol=protocol)
    try:
        consumer.subscribe([used.source])
        values = read_values(consumer, 6)
        producer.begin_transaction()
        producer.produce(used.target, b"result", partition=0)
        producer.flush(DEADLINE_S)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE_S
        )
        producer.commit_transaction(DEADLINE_S)
    finally:
        consumer.close()
    return values


def read_while_written(kafka: EmbeddedBroker, used: Names) -> list[bytes]:
    """Read as two members of a group whose fetches wait while the records are produced."""
    members: Sequence[Consumer] = [make_member(kafka, used.group, fetch_wait_max_ms=3000) for _ in range(2)]
    values: list[bytes] = []

    def read(member: Consumer) -> None:
        while len(values) < 6:
            message = member.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")

    readers = [threading.Thread(target=read, args=(member,), daemon=True) for member in members]
    producer = make_transactional_producer(kafka, used.transactional_id)
    for member in members:
        member.subscribe([used.source])
    for reader in readers:
        reader.start()
    # Otherwise a member that reads before the other one has joined may repeat records after the rebalance. Not by
    # Consumer.assignment(), which blocks the interpreter if another thread polls during a rebalance.
    kafka.group(used.group).wait_stable(len(members), timeout=DEADLINE_S)
    for number in range(3):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(used.source, f"{number}-{partition}", partition=partition)
        producer.commit_transaction(DEADLINE_S)
    for reader in readers:
        reader.join(DEADLINE_S)
    for member in members:
        member.close()
    return values


def record(path: Path, used: Names, protocol: str = "classic") -> list[bytes]:
    """Record a session with transactions on a fresh broker; return the values read."""
    with EmbeddedBroker(topics={used.source: 1, used.target: 1}) as kafka, kafka.recording(path):
        return commit_and_abort(kafka, used, protocol)
