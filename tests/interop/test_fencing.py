"""One transactional id has one owner: §4.1 of the scenarios on fencing, with each client on both sides."""

from collections.abc import Callable

import pytest

from tests.conformance.clients import READ_UNCOMMITTED, unique
from tests.interop.brokers import Running
from tests.interop.driver import Client, ClientError, TransactionalProducer
from tests.interop.judge import FENCED, end, forgets, make_topic, wait_for_end_offset

PARTITIONS = 2
Step = Callable[[TransactionalProducer, str, str], object]
# What the fenced producer tries next; the first record of its transaction is in partition 0.
PHASES: dict[str, Step] = {
    "commit": lambda producer, topic, group: producer.commit(),
    "send": lambda producer, topic, group: producer.send(topic, "too late"),
    "add partitions": lambda producer, topic, group: producer.send(topic, "too late", partition=1),
    "send offsets": lambda producer, topic, group: producer.offsets(group, topic, 7),
}


def is_fenced(act: Callable[[], object]) -> None:
    """Hold a client to saying that it was fenced, and not that something else went wrong."""
    with pytest.raises(ClientError) as failure:
        act()
    assert failure.value.name in FENCED, failure.value


def fences(kafka: Running, first: Client, second: Client, step: Step) -> None:
    """Let the second client take over the id of the first, which is in the middle of a transaction."""
    topic, group, transactional_id = make_topic(kafka, partitions=PARTITIONS), unique("group"), unique("id")
    old = first.producer(transactional_id).begin()
    old.send(topic, "of the first")
    new = second.producer(transactional_id).begin()
    new.send(topic, "of the second")
    is_fenced(lambda: step(old, topic, group))
    new.commit()
    end(kafka, topic, PARTITIONS)
    assert second.values(topic, partitions=PARTITIONS) == ["of the second"]
    assert sorted(second.values(topic, partitions=PARTITIONS, isolation=READ_UNCOMMITTED)) == [
        "of the first", "of the second"]
    assert second.committed(group, topic) is None


@pytest.mark.parametrize("phase", PHASES)
def test_a_second_producer_fences_the_first(kafka: Running, client: Client, phase: str):
    fences(kafka, client, client, PHASES[phase])


@pytest.mark.parametrize("phase", ["commit", "send"])
def test_one_client_fences_another(kafka: Running, client: Client, peer: Client, phase: str):
    fences(kafka, client, peer, PHASES[phase])


def test_a_transaction_that_times_out_fences_its_producer(kafka: Running, client: Client):
    topic, transactional_id = make_topic(kafka), unique("id")
    producer = client.producer(transactional_id, timeout_ms=1_000).begin()
    producer.send(topic, "too slow")
    wait_for_end_offset(kafka, topic, 2)
    with pytest.raises(ClientError):
        producer.send(topic, "too late")
        producer.commit()
    again = client.producer(transactional_id).begin()
    again.send(topic, "in time")
    again.commit()
    end(kafka, topic)
    assert client.values(topic) == ["in time"]
    assert client.values(topic, isolation=READ_UNCOMMITTED) == ["too slow", "in time"]


def test_an_expired_transactional_id_is_of_no_use_until_it_is_taken_again(fleeting_kafka: Running, client: Client):
    topic, transactional_id = make_topic(fleeting_kafka), unique("id")
    producer = client.producer(transactional_id).begin()
    producer.send(topic, "before")
    producer.commit()
    forgets(fleeting_kafka, transactional_id)
    with pytest.raises(ClientError):
        producer.begin()
        producer.send(topic, "from nobody")
        producer.commit()
    again = client.producer(transactional_id).begin()
    again.send(topic, "after")
    again.commit()
    end(fleeting_kafka, topic)
    assert client.values(topic) == ["before", "after"]
