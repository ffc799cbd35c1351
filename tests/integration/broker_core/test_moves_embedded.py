"""Leaders and coordinators of an embedded cluster move from any thread while clients continue without errors."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode

DEADLINE_S = 60
BROKERS = (1, 2, 3)
TRANSACTIONS, PARTITIONS = 6, 3


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        brokers=3, topics={"t": 1, "moving": PARTITIONS}, config={"transaction.state.log.num.partitions": "3"}
    ) as kafka:
        yield kafka


def committed_values(kafka: EmbeddedBroker) -> list[bytes]:
    """Read each partition of the topic to its end, as read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    values, ended = [], 0
    try:
        consumer.assign([TopicPartition("moving", partition, 0) for partition in range(PARTITIONS)])
        while ended < PARTITIONS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{ended} of {PARTITIONS} partitions were read to their end"
            if message.error() is None:
                values.append(message.value())
            else:
                ended += 1
        return values
    finally:
        consumer.close()


def test_transactions_keep_their_outcome_while_every_leader_moves(kafka: EmbeddedBroker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "mover",
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
    )
    producer.init_transactions(DEADLINE_S)
    with ThreadPoolExecutor(PARTITIONS + 1) as threads:
        for number in range(TRANSACTIONS):
            broker = BROKERS[number % len(BROKERS)]
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("moving", b"%d" % number, partition=partition)
            # All moves at once, each from its own thread, while a transaction is open.
            moves = [
                threads.submit(kafka.move_leader, ("moving", partition), broker) for partition in range(PARTITIONS)
            ]
            moves.append(threads.submit(kafka.move_coordinator, broker, transactional_id="mover"))
            # librdkafka would drop unsent records at an abort, and it forgets a record that a former leader refused.
            assert producer.flush(DEADLINE_S) == 0
            end(producer, commit=number % 3 != 2)
            for move in moves:
                move.result(DEADLINE_S)
    expected = sorted(b"%d" % number for number in range(TRANSACTIONS) if number % 3 != 2 for _ in range(PARTITIONS))
    assert sorted(committed_values(kafka)) == expected


def end(producer: Producer, *, commit: bool) -> None:
    """End the transaction; repeat while the client reports a retriable error."""
    while True:
        try:
            if commit:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def test_group_continues_while_its_coordinator_moves(kafka: EmbeddedBroker) -> None:
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "followed",
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    seen = []
    try:
        consumer.subscribe(["t"])
        for number, broker in enumerate(BROKERS):
            plain.produce("t", b"%d" % number, partition=0)
            assert plain.flush(DEADLINE_S) == 0
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None, message.error()
            seen.append(message.value())
            kafka.move_coordinator(broker, group="followed")
            commit(consumer, message)
        [committed] = consumer.committed([TopicPartition("t", 0)], DEADLINE_S)
        assert committed.offset == len(BROKERS)
    finally:
        consumer.close()
    assert seen == [b"0", b"1", b"2"]


def commit(consumer: Consumer, message: object) -> None:
    """Commit the message's offset; repeat while the client reports that its coordinator has moved."""
    while True:
        try:
            consumer.commit(message=message, asynchronous=False)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable() and problem.args[0].code() != ErrorCode.NOT_COORDINATOR:
                raise
