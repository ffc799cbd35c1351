"""Share groups (KIP-932) as Apache Kafka's Java share consumer uses them."""

from collections.abc import Iterator

import pytest

from tests.support.clients import (
    DEADLINE_S,
    Kafka,
    make_producer,
    make_topic,
    make_transactional_producer,
    send,
    unique,
)
from tests.support.share_consumers import Delivered, ShareConsumers
from tests.support.share_session import make_group
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("apache_asked_for")
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


@pytest.fixture(scope="module")
def jvm() -> Iterator[ShareConsumers]:
    with ShareConsumers() as running:
        yield running


@pytest.fixture
def consumers(kafka: Kafka, jvm: ShareConsumers) -> Iterator[ShareConsumers]:
    jvm.bootstrap_servers = kafka.bootstrap_servers
    yield jvm
    jvm.close_members()


def values(delivered: list[Delivered]) -> list[str]:
    return sorted(each.value for each in delivered)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%03d" % number for number in range(start, start + count)]


def texts(count: int, start: int = 0) -> list[str]:
    return [each.decode() for each in numbers(count, start)]


def test_records_are_accepted_with_the_next_poll(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka, partitions=2), make_group(kafka)
    for partition in range(2):
        send(make_producer(kafka), topic, numbers(10, 10 * partition), partition=partition)
    member = consumers.open(topic, group)
    assert values(member.take(20)) == texts(20)
    send(make_producer(kafka), topic, numbers(5, 20), partition=0)
    more = member.take(5)
    assert values(more) == texts(5, 20)
    assert {each.delivery_count for each in more} == {1}
    assert member.commit() == {"0": ""}
    member.close()
    heir = consumers.open(topic, group)
    send(make_producer(kafka), topic, numbers(1, 25), partition=1)
    assert values(heir.take(1)) == texts(1, 25)
    heir.close()


# Rule K.1/2.
def test_each_record_goes_to_one_of_the_members_of_a_partition(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka)
    members = [consumers.open(topic, group, max_poll_records="10") for _ in range(3)]
    for member in members:
        member.poll(2_000)
    producer = make_producer(kafka)
    found: list[list[Delivered]] = [[], [], []]

    def all_delivered() -> bool:
        for member, delivered in zip(members, found, strict=True):
            delivered += member.poll(100)
        return sum(map(len, found)) >= 200

    for batch in range(20):
        send(producer, topic, numbers(10, 10 * batch), partition=0)
        for member, delivered in zip(members, found, strict=True):
            delivered += member.poll(50)
    wait_until(all_delivered, "all records are delivered")
    assert values([each for delivered in found for each in delivered]) == texts(200)
    assert sum(bool(delivered) for delivered in found) >= 2, "the members share one partition"
    for member in members:
        member.close()


# Rule K.4/1.
def test_explicit_acknowledgments_accept_release_and_reject(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka)
    send(make_producer(kafka), topic, numbers(3), partition=0)
    member = consumers.open(topic, group, **EXPLICIT)
    first = member.take(3)
    for each, kind in zip(first, ("ACCEPT", "RELEASE", "REJECT"), strict=True):
        member.acknowledge(each, kind)
    assert member.commit() == {"0": ""}
    [again] = member.take(1)
    assert (again.value, again.delivery_count) == ("001", 2)
    member.acknowledge(again)
    assert member.commit() == {"0": ""}
    assert member.poll() == []
    member.close()


# Rule K.4/2.
def test_renewal_extends_the_lock(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka, share_record_lock_duration_ms="2000")
    send(make_producer(kafka), topic, numbers(1), partition=0)
    slow, other = consumers.open(topic, group, **EXPLICIT), consumers.open(topic, group, **EXPLICIT)
    [held] = slow.take(1)
    for _ in range(6):
        slow.acknowledge(held, "RENEW")
        assert slow.commit() == {"0": ""}
        assert other.poll(700) == []
        # The client gives out a record again whose lock was renewed.
        [held] = slow.take(1)
        assert held.delivery_count == 1
    slow.acknowledge(held)
    assert slow.commit() == {"0": ""}
    for member in (slow, other):
        member.close()


# Rule K.3/6.
def test_committed_reader_skips_aborted_transactions(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka, share_isolation_level="read_committed")
    producer = make_transactional_producer(kafka, unique("id"))
    for number, commits in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for value in numbers(3, 10 * number):
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        if commits:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    member = consumers.open(topic, group)
    assert values(member.take(6)) == texts(3) + texts(3, 20)
    assert member.poll(1_000) == []
    producer.commit_transaction(DEADLINE_S)
    assert values(member.take(1)) == ["open"]
    assert member.poll() == []
    member.close()


# Rule K.3/7.
def test_uncommitted_reader_gets_aborted_and_open_transactions(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka)
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    assert producer.flush(60) == 0
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    member = consumers.open(topic, group)
    assert values(member.take(2)) == ["aborted", "open"]
    producer.commit_transaction(DEADLINE_S)
    member.close()


def test_records_of_a_killed_consumer_are_delivered_to_another(kafka: Kafka, consumers: ShareConsumers):
    topic, group = make_topic(kafka), make_group(kafka)
    send(make_producer(kafka), topic, numbers(10), partition=0)
    with ShareConsumers(kafka.bootstrap_servers) as doomed:
        member = doomed.open(topic, group, **EXPLICIT)
        held = member.take(10)
        for each in held[:4]:
            member.acknowledge(each)
        for each in held[4:]:
            member.acknowledge(each, "RENEW")
        assert member.commit() == {"0": ""}
        doomed.kill()
    heir = consumers.open(topic, group)
    again = heir.take(6)
    assert values(again) == texts(6, 4)
    assert {each.delivery_count for each in again} == {2}
    heir.close()
