"""The life of a transaction that nobody disturbs, or only a little: §4.1 of the scenarios with each client."""

import pytest

from tests.conformance.clients import READ_UNCOMMITTED, committed_offset, unique
from tests.interop.brokers import Running
from tests.interop.driver import Client, ClientError, TransactionalProducer
from tests.interop.judge import delete_topic, end, make_topic
from tests.interop.test_fencing import PHASES, fences

LARGEST_BYTES = 1_000


def commit_alone(producer: TransactionalProducer, topic: str, value: str) -> None:
    """Commit a record in a transaction of its own."""
    producer.begin()
    try:
        producer.send(topic, value)
    except ClientError as failure:
        # librdkafka 2.16 throws away, without sending it, what is produced right after an abort that raises its epoch.
        if failure.name != "_PURGE_QUEUE":
            raise
        producer.abort()
        producer.begin().send(topic, value)
    producer.commit()


def recovers_from_a_refused_record(kafka: Running, client: Client) -> None:
    """Let the broker refuse a record; after the abort the producer has to be of use again."""
    topic = make_topic(kafka, config={"max.message.bytes": str(LARGEST_BYTES)})
    producer = client.producer(unique("id")).begin()
    producer.send(topic, "first")
    producer.commit()
    producer.begin()
    producer.send(topic, "aborted")
    with pytest.raises(ClientError):
        producer.send(topic, "x" * 2 * LARGEST_BYTES)
    producer.abort()
    for value in ("second", "third"):
        commit_alone(producer, topic, value)
    end(kafka, topic)
    assert client.values(topic) == ["first", "second", "third"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["first", "aborted", "second", "third"]


def test_after_a_refused_record_and_an_abort_later_transactions_commit(kafka: Running, client: Client):
    recovers_from_a_refused_record(kafka, client)


def test_an_empty_transaction_is_aborted_right_after_a_commit(kafka: Running, client: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"))
    producer.begin().send(topic, "first")
    producer.commit()
    producer.begin().abort()
    producer.begin().send(topic, "second")
    producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["first", "second"]


def test_an_empty_transaction_is_committed(kafka: Running, client: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"))
    producer.begin().commit()
    producer.begin().send(topic, "first")
    producer.commit()
    producer.begin().commit()
    producer.begin().send(topic, "second")
    producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["first", "second"]


def test_offset_and_metadata_come_back_as_they_were_committed(kafka: Running, client: Client):
    topic, group = make_topic(kafka), unique("group")
    producer = client.producer(unique("id"))
    producer.begin().offsets(group, topic, 3, "aborted")
    producer.abort()
    assert client.committed(group, topic) is None
    producer.begin().offsets(group, topic, 5, "métadata")
    producer.commit()
    assert client.committed(group, topic) == (5, "métadata")
    assert committed_offset(kafka, group, topic) == 5


def test_deleting_one_topic_of_a_transaction_does_not_block_the_commit_of_the_other(kafka: Running, client: Client):
    doomed, topic = make_topic(kafka), make_topic(kafka)
    producer = client.producer(unique("id")).begin()
    producer.send(doomed, "lost")
    producer.send(topic, "kept")
    delete_topic(kafka, doomed)
    producer.commit()
    producer.begin().send(topic, "next")
    producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["kept", "next"]


def test_under_transaction_version_1_records_are_committed_and_aborted(kafka_v1: Running, client: Client):
    topic = make_topic(kafka_v1)
    producer = client.producer(unique("id"))
    for number in range(4):
        producer.begin().send(topic, str(number))
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    end(kafka_v1, topic)
    assert client.values(topic) == ["0", "2"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("phase", PHASES)
def test_under_transaction_version_1_a_second_producer_fences_the_first(
    kafka_v1: Running, client: Client, phase: str
):
    fences(kafka_v1, client, client, PHASES[phase])


def test_under_transaction_version_1_later_transactions_commit_after_a_refused_record(
    kafka_v1: Running, client: Client
):
    recovers_from_a_refused_record(kafka_v1, client)
