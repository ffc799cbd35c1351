"""Exhausted producer epochs: with each client, on ids whose journal has one epoch left."""

import pytest

from tests.interop.driver import Client
from tests.interop.fleet import FLEET
from tests.interop.judge import (
    ENDED,
    FENCED,
    Identity,
    end,
    exhaust_epochs,
    identity,
    is_refused,
    make_topic,
    send_and_commit,
    state_of,
    wait_for_end_offset,
)
from tests.support.clients import READ_UNCOMMITTED, unique
from tests.support.interop_brokers import Bouncing
from tests.support.waiting import wait_until

Worn = dict[tuple[str, str], tuple[str, Identity]]
END_OF = ("committed", "timed out")


@pytest.fixture(scope="session")
def worn(bouncing_kafka: Bouncing) -> Worn:
    """Exhaust an id for each test, and let the coordinators load them."""
    bouncing_kafka.start()
    ids: Worn = {}
    for name in FLEET:
        for end_of in END_OF:
            transactional_id = unique("worn")
            ids[name, end_of] = transactional_id, exhaust_epochs(bouncing_kafka, transactional_id)
    bouncing_kafka.stop()
    bouncing_kafka.start()
    return ids


def test_last_epoch_is_followed_by_a_new_producer_id(bouncing_kafka: Bouncing, client: Client, worn: Worn):
    topic = make_topic(bouncing_kafka)
    transactional_id, last = worn[client.name, "committed"]
    producer = client.producer(transactional_id)
    assert identity(bouncing_kafka, transactional_id) == last
    for value in ("first", "second"):
        producer.begin().send(topic, value)
        producer.commit()
    producer = client.producer(transactional_id).begin()
    assert identity(bouncing_kafka, transactional_id).producer_id != last.producer_id
    producer.send(topic, "third")
    producer.commit()
    end(bouncing_kafka, topic)
    assert client.values(topic) == ["first", "second", "third"]


def test_timeout_at_the_last_epoch_leaves_no_open_transaction(bouncing_kafka: Bouncing, client: Client, worn: Worn):
    topic = make_topic(bouncing_kafka)
    transactional_id, last = worn[client.name, "timed out"]
    producer = client.producer(transactional_id, timeout_ms=2_000)
    assert identity(bouncing_kafka, transactional_id) == last
    producer.begin().send(topic, "too slow")
    wait_for_end_offset(bouncing_kafka, topic, 2)
    is_refused(lambda: send_and_commit(producer, topic, "too late"), FENCED | ENDED)
    producer = client.producer(transactional_id)
    assert identity(bouncing_kafka, transactional_id).producer_id != last.producer_id
    producer.begin().send(topic, "in time")
    producer.commit()
    wait_until(lambda: state_of(bouncing_kafka, transactional_id) == "CompleteCommit", "no transaction is open")
    end(bouncing_kafka, topic)
    assert client.values(topic) == ["in time"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["too slow", "in time"]
