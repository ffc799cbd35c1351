"""The life of a transaction without faults or with small ones: with each client."""

from collections import Counter
from contextlib import suppress
from threading import Event, Timer

import pytest

from broker_core import EmbeddedBroker, Hold
from tests.interop.driver import Client, ClientError, TransactionalProducer
from tests.interop.fencing import PHASES, fences
from tests.interop.judge import (
    abort_as_administrator,
    delete_topic,
    end,
    end_offset,
    identity,
    is_refused,
    make_topic,
    state_of,
    wait_for_end_offset,
)
from tests.support.clients import READ_COMMITTED, READ_UNCOMMITTED, committed_offset, unique
from tests.support.interop_brokers import Running, at_version
from tests.support.waiting import wait_until

LARGEST_BYTES = 1_000
HURRIED = 10
HELD_S = 0.3
# The clients' own checks
NOT_NOW = frozenset(
    {
        "IllegalStateException",
        "_STATE",
        "Invalid transition",
        "Invalid state transition",
    }
)


def commit_alone(producer: TransactionalProducer, topic: str, value: str) -> None:
    """Commit a record in a transaction of its own."""
    producer.begin()
    try:
        producer.send(topic, value)
    except ClientError as failure:
        # librdkafka 2.16 drops what is produced right after an abort that raises its epoch, without sending it.
        if failure.name != "_PURGE_QUEUE":
            raise
        producer.abort()
        producer.begin().send(topic, value)
    producer.commit()


def commit_at_once(producer: TransactionalProducer, topic: str, value: str, partitions: int) -> None:
    """Commit a record in each partition; repeat if kafkajs gives up while the previous transaction completes."""

    def is_committed() -> bool:
        producer.begin()
        try:
            for partition in range(partitions):
                producer.send(topic, value, partition=partition)
        except ClientError as failure:
            assert failure.name == "CONCURRENT_TRANSACTIONS", failure
            producer.abort()
            return False
        producer.commit()
        return True

    wait_until(is_committed, f"{value} is committed")


def recovers_from_a_refused_record(kafka: Running, client: Client) -> None:
    """Let the broker refuse a record; after the abort the producer must be usable again."""
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


def test_later_transactions_commit_after_a_refused_record_and_an_abort(kafka: Running, client: Client):
    recovers_from_a_refused_record(kafka, client)


@pytest.mark.parametrize("commits", [False, True], ids=["aborted", "committed"])
def test_empty_transaction_ends_before_and_after_another(kafka: Running, client: Client, commits: bool):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"))
    for value in ("first", "second"):
        producer.begin()
        (producer.commit if commits else producer.abort)()
        producer.begin().send(topic, value)
        producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["first", "second"]


def test_committed_offset_and_metadata_are_returned(kafka: Running, client: Client):
    topic, group = make_topic(kafka), unique("group")
    producer = client.producer(unique("id"))
    producer.begin().offsets(group, topic, 3, "aborted")
    producer.abort()
    assert client.committed(group, topic) is None
    producer.begin().offsets(group, topic, 5, "métadata")
    producer.commit()
    assert client.committed(group, topic) == (5, "métadata")
    assert committed_offset(kafka, group, topic) == 5


def test_id_is_initialized_once(kafka: Running, client: Client):
    topic, transactional_id = make_topic(kafka), unique("id")
    producer = client.producer(transactional_id)
    before = identity(kafka, transactional_id)
    # Most clients raise an error; kafka-python succeeds without doing anything.
    with suppress(ClientError):
        producer.init()
    assert identity(kafka, transactional_id) == before
    again = client.producer(transactional_id)
    assert identity(kafka, transactional_id) == (before.producer_id, before.producer_epoch + 1)
    again.begin().send(topic, "first")
    again.commit()
    end(kafka, topic)
    assert client.values(topic) == ["first"]


def test_abort_is_followed_by_a_commit_with_one_request_in_flight(kafka: Running, client: Client):
    topic = make_topic(kafka)
    producer = client.producer(unique("id"), in_flight=1)
    producer.begin().send(topic, "1", "2")
    producer.abort()
    producer.begin().send(topic, "3", "4")
    producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["3", "4"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["1", "2", "3", "4"]


def test_calls_in_the_wrong_order_are_refused_without_effect(kafka: Running, client: Client):
    topic, transactional_id = make_topic(kafka), unique("id")
    producer = client.producer(transactional_id)
    before = identity(kafka, transactional_id)
    for wrong in (producer.commit, producer.abort):
        is_refused(wrong, NOT_NOW)
    assert (identity(kafka, transactional_id), state_of(kafka, transactional_id)) == (before, "Empty")
    producer.begin().send(topic, "first")
    is_refused(producer.begin, NOT_NOW)
    producer.commit()
    wait_until(
        lambda: state_of(kafka, transactional_id) == "CompleteCommit", "the coordinator reports that it is complete"
    )
    end(kafka, topic)
    assert client.values(topic) == ["first"]


@pytest.mark.parametrize("commits", [False, True], ids=["aborted", "committed"])
def test_transaction_with_only_offsets_ends(kafka: Running, client: Client, commits: bool):
    topic, group, transactional_id = make_topic(kafka), unique("group"), unique("id")
    producer = client.producer(transactional_id).begin()
    producer.offsets(group, topic, 5)
    if commits:
        producer.commit()
    else:
        producer.abort()
    wait_until(
        lambda: state_of(kafka, transactional_id) == ("CompleteCommit" if commits else "CompleteAbort"),
        "the transaction ends",
    )
    assert client.committed(group, topic) == ((5, "") if commits else None)


def test_partition_added_without_records_is_committed(kafka: Running, client: Client):
    topic, transactional_id = make_topic(kafka, partitions=2), unique("id")
    producer = client.producer(transactional_id).begin()
    producer.add(topic, 1)
    producer.commit()
    wait_until(lambda: state_of(kafka, transactional_id) == "CompleteCommit", "the transaction ends")
    # Its marker is there, of a transaction without a record.
    assert end_offset(kafka, topic, isolation=READ_COMMITTED, partition=1) == 1
    producer.begin().add(topic, 1)
    producer.send(topic, "written")
    producer.commit()
    end(kafka, topic, 2)
    assert client.values(topic, partitions=2) == ["written"]


def test_immediately_following_transactions_lose_nothing(kafka: Running, client: Client):
    topic = make_topic(kafka, partitions=3)
    producer = client.producer(unique("id"))
    for number in range(HURRIED):
        commit_at_once(producer, topic, str(number), 3)
    end(kafka, topic, 3)
    assert Counter(client.values(topic, partitions=3)) == {str(number): 3 for number in range(HURRIED)}


def test_next_transaction_waits_for_completion_of_the_previous_one_and_loses_nothing(
    three_brokers: EmbeddedBroker, client: Client
):
    topic, transactional_id, may_go_on = make_topic(three_brokers, partitions=2), unique("id"), Event()
    producer = client.producer(transactional_id).begin()
    producer.send(topic, "first")
    with three_brokers.fault(api="EndTxn", when="mid", transactional_id=transactional_id, action=Hold(may_go_on)):
        producer.commit()
        assert three_brokers.transaction(transactional_id).state == "PrepareCommit"
        release = Timer(HELD_S, may_go_on.set)
        release.start()
        try:
            commit_at_once(producer, topic, "second", 2)
        finally:
            release.join()
    end(three_brokers, topic, 2)
    assert sorted((each.partition, each.value) for each in client.read(topic, partitions=2)) == [
        (0, "first"),
        (0, "second"),
        (1, "second"),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_client_may_commit_a_transaction_aborted_by_an_administrator(kafka: Running, client: Client, version: int):
    topic, transactional_id = make_topic(kafka), unique("id")
    with at_version(kafka, version):
        producer = client.producer(transactional_id).begin()
        producer.send(topic, "aborted by an administrator")
        abort_as_administrator(kafka, topic, transactional_id)
        wait_for_end_offset(kafka, topic, 2)
        producer.commit()
        wait_until(lambda: state_of(kafka, transactional_id) == "CompleteCommit", "the commit took effect")
        producer.begin().send(topic, "next")
        producer.commit()
    end(kafka, topic)
    assert client.values(topic) == ["next"]


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


def test_records_are_committed_and_aborted_under_transaction_version_1(kafka_v1: Running, client: Client):
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
def test_second_producer_under_transaction_version_1_fences_the_first(kafka_v1: Running, client: Client, phase: str):
    fences(kafka_v1, client, client, PHASES[phase])


def test_later_transactions_commit_after_a_refused_record_under_transaction_version_1(
    kafka_v1: Running, client: Client
):
    recovers_from_a_refused_record(kafka_v1, client)
