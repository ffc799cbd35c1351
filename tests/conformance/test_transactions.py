"""Transactions seen by clients: what each isolation level reads, what blocks it, and fencing."""

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import OffsetSpec

from tests.support.clients import (
    DEADLINE_S,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Kafka,
    end_offset,
    find_offset,
    make_producer,
    make_topic,
    make_transactional_producer,
    read_to_end,
    send,
    unique,
    values_soon,
    values_to_end,
    wait_for_end_offset,
)

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def run_transaction(producer: Producer, topic: str, values: list[bytes], *, commit: bool, partition: int = 0) -> None:
    """Send the values in one transaction and end it."""
    producer.begin_transaction()
    send(producer, topic, values, partition=partition)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


def test_only_committed_transactions_are_read_committed(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    for number in range(10):
        run_transaction(producer, topic, [b"%d" % number], commit=number % 2 == 0)
    values_soon(kafka, topic, [b"0", b"2", b"4", b"6", b"8"])
    uncommitted = values_to_end(kafka, topic, isolation=READ_UNCOMMITTED)
    assert uncommitted == [b"%d" % number for number in range(10)]


# Rule D.2/6.
def test_each_marker_takes_one_offset(kafka: Kafka):
    topic = make_topic(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    run_transaction(producer, topic, [b"a", b"b"], commit=True)
    run_transaction(producer, topic, [b"x"], commit=False)
    run_transaction(producer, topic, [b"c"], commit=True)
    values_soon(kafka, topic, [b"a", b"b", b"c"])
    assert [message.offset() for message in read_to_end(kafka, topic)] == [0, 1, 5]
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 7


def test_interleaved_transactions_end_in_any_order(kafka: Kafka):
    topic = make_topic(kafka)
    one, other = (make_transactional_producer(kafka, unique("id")) for _ in range(2))
    one.begin_transaction()
    other.begin_transaction()
    send(one, topic, [b"1a"])
    send(other, topic, [b"2a"])
    send(one, topic, [b"1b"])
    other.commit_transaction(DEADLINE_S)
    wait_for_end_offset(kafka, topic, 4, isolation=READ_UNCOMMITTED)
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 0
    assert values_to_end(kafka, topic) == []
    one.abort_transaction(DEADLINE_S)
    values_soon(kafka, topic, [b"2a"])
    assert end_offset(kafka, topic, isolation=READ_COMMITTED) == 5


# Rules D.3/1 and D.3/4.
@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_timestamp_lookup_finds_a_marker_at_its_own_time(kafka: Kafka, isolation: str):
    topic = make_topic(kafka)
    base_ms = 1_700_000_000_000
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=0, timestamp=base_ms)
    producer.commit_transaction(DEADLINE_S)
    wait_for_end_offset(kafka, topic, 2)
    plain = make_producer(kafka)
    plain.produce(topic, b"behind the marker", partition=0, timestamp=base_ms + 1000)
    assert plain.flush(DEADLINE_S) == 0

    def found(spec: OffsetSpec) -> tuple[int, int]:
        return find_offset(kafka, topic, spec, isolation=isolation)

    marker_offset, marker_ms = found(OffsetSpec.for_timestamp(base_ms + 1))
    assert marker_offset == 1
    assert marker_ms > base_ms + 1000
    assert found(OffsetSpec.for_timestamp(base_ms)) == (0, base_ms)
    assert found(OffsetSpec.for_timestamp(marker_ms)) == (1, marker_ms)
    assert found(OffsetSpec.for_timestamp(marker_ms + 1))[0] == -1
    assert found(OffsetSpec.max_timestamp()) == (1, marker_ms)
