"""Offsets committed inside transactions: records and offsets take effect together or not at all."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    committed_offset,
    make_consumer,
    make_producer,
    make_topic,
    make_transactional_producer,
    send,
    unique,
    values_soon,
    values_to_end,
    wait_for_end_offset,
)
from tests.support.waiting import wait_until

NO_OFFSET = -1001


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_advance_only_with_the_transaction(kafka: Kafka, commit: bool):
    source, target, group = make_topic(kafka), make_topic(kafka), unique("group")
    send(make_producer(kafka), source, [b"a", b"b", b"c"])
    consumer = make_consumer(kafka, group=group, enable_partition_eof=False)
    producer = make_transactional_producer(kafka, unique("id"))
    try:
        consumer.subscribe([source])
        producer.begin_transaction()
        for _ in range(3):
            message = wait_until(lambda: consumer.poll(1), "a record of the source")
            producer.produce(target, message.value().upper(), partition=0)
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), DEADLINE_S)
        # An abort drops what is still queued in the client; the record must reach the log first.
        assert producer.flush(DEADLINE_S) == 0
        if commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    finally:
        consumer.close()
    wait_for_end_offset(kafka, target, 4)
    assert values_to_end(kafka, target) == ([b"A", b"B", b"C"] if commit else [])
    assert committed_offset(kafka, group, source) == (3 if commit else NO_OFFSET)


def test_each_record_is_processed_once_though_every_second_attempt_aborts(kafka: Kafka):
    source, target, group = make_topic(kafka), make_topic(kafka), unique("group")
    expected = [b"%d" % number for number in range(20)]
    send(make_producer(kafka), source, expected)
    producer = make_transactional_producer(kafka, unique("id"))
    for attempt in range(100):
        start = max(committed_offset(kafka, group, source), 0)
        if start == len(expected):
            break
        consumer = make_consumer(kafka, group=group)
        consumer.assign([TopicPartition(source, 0, start)])
        producer.begin_transaction()
        for _ in range(5):
            message = wait_until(lambda consumer=consumer: consumer.poll(1), "a record of the source")
            assert message.error() is None
            producer.produce(target, message.value(), partition=0)
        producer.send_offsets_to_transaction(
            [TopicPartition(source, 0, start + 5)], consumer.consumer_group_metadata(), DEADLINE_S
        )
        consumer.close()
        if attempt % 2:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    values_soon(kafka, target, expected)


def test_transaction_with_only_offsets_commits(kafka: Kafka):
    source, group = make_topic(kafka), unique("group")
    consumer = make_consumer(kafka, group=group)
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(source, 0, 42, "a note")], consumer.consumer_group_metadata(), DEADLINE_S
    )
    producer.commit_transaction(DEADLINE_S)
    (answer,) = consumer.committed([TopicPartition(source, 0)], timeout=DEADLINE_S)
    consumer.close()
    assert (answer.offset, answer.metadata) == (42, "a note")


def test_fenced_producer_commits_no_offsets(kafka: Kafka):
    source, group, transactional_id = make_topic(kafka), unique("group"), unique("id")
    consumer = make_consumer(kafka, group=group)
    first = make_transactional_producer(kafka, transactional_id)
    first.begin_transaction()
    make_transactional_producer(kafka, transactional_id)
    with pytest.raises(KafkaException) as refused:
        first.send_offsets_to_transaction(
            [TopicPartition(source, 0, 5)], consumer.consumer_group_metadata(), DEADLINE_S
        )
    consumer.close()
    error: KafkaError = refused.value.args[0]
    assert error.fatal()
    assert committed_offset(kafka, group, source) == NO_OFFSET


def test_offsets_from_a_former_generation_are_refused(kafka: Kafka):
    source, group = make_topic(kafka), unique("group")
    producer = make_transactional_producer(kafka, unique("id"))
    former = make_consumer(kafka, group=group, enable_partition_eof=False)
    former.subscribe([source])
    wait_until(lambda: former.poll(0.1) or former.assignment(), "the member has its partition")
    metadata = former.consumer_group_metadata()
    former.close()
    current = make_consumer(kafka, group=group, enable_partition_eof=False)
    current.subscribe([source])
    wait_until(lambda: current.poll(0.1) or current.assignment(), "the next member has its partition")
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 5)], metadata, DEADLINE_S)
    error: KafkaError = refused.value.args[0]
    assert error.txn_requires_abort()
    producer.abort_transaction(DEADLINE_S)
    current.close()
    assert committed_offset(kafka, group, source) == NO_OFFSET
