"""Expiry in coordinators and partitions: with each client."""

import pytest

from tests.interop.driver import Client
from tests.interop.judge import FORGOTTEN, end, forgets, identity, is_refused, make_topic, producers_of, send_and_commit
from tests.support.clients import READ_UNCOMMITTED, unique
from tests.support.interop_brokers import Running, at_version
from tests.support.waiting import wait_until

both_versions = pytest.mark.parametrize("version", [1, 2])


def forgotten_by_partition(kafka: Running, topic: str) -> None:
    """Wait until partition 0 knows no producer."""
    wait_until(lambda: not producers_of(kafka, topic), f"{topic} remembers no producer")


@both_versions
def test_expired_transactional_id_is_unusable_until_initialized_again(
    fleeting_kafka: Running, client: Client, version: int
):
    topic, transactional_id = make_topic(fleeting_kafka), unique("id")
    with at_version(fleeting_kafka, version):
        producer = client.producer(transactional_id).begin()
        producer.send(topic, "before")
        producer.commit()
        first = identity(fleeting_kafka, transactional_id)
        forgets(fleeting_kafka, transactional_id)
        assert [each.producer_id for each in producers_of(fleeting_kafka, topic)] == [first.producer_id]
        is_refused(lambda: send_and_commit(producer.begin(), topic, "from an expired id"), FORGOTTEN)
        again = client.producer(transactional_id).begin()
        assert identity(fleeting_kafka, transactional_id).producer_id != first.producer_id
        again.send(topic, "after")
        again.commit()
    end(fleeting_kafka, topic)
    assert client.values(topic) == client.values(topic, isolation=READ_UNCOMMITTED) == ["before", "after"]


@both_versions
def test_partition_forgets_a_producer_its_coordinator_knows(forgetful_kafka: Running, client: Client, version: int):
    topic, transactional_id = make_topic(forgetful_kafka), unique("id")
    with at_version(forgetful_kafka, version):
        producer = client.producer(transactional_id)
        for value in ("first", "second"):
            producer.begin().send(topic, value)
            producer.commit()
            forgotten_by_partition(forgetful_kafka, topic)
        before = identity(forgetful_kafka, transactional_id)
        again = client.producer(transactional_id)
        after = identity(forgetful_kafka, transactional_id)
        again.begin().send(topic, "third")
        again.commit()
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 1)
    end(forgetful_kafka, topic)
    assert client.values(topic) == ["first", "second", "third"]


def test_partition_forgets_an_idempotent_producer_which_continues(forgetful_kafka: Running, client: Client):
    topic = make_topic(forgetful_kafka)
    producer = client.new_producer(None)
    assert producer.send(topic, "first", "second") == [0, 1]
    assert producers_of(forgetful_kafka, topic)
    forgotten_by_partition(forgetful_kafka, topic)
    assert producer.send(topic, "third") == [2]
    end(forgetful_kafka, topic)
    assert client.values(topic) == ["first", "second", "third"]
