"""Crashes between the acquisition of records by a share group and their acknowledgment: each is accepted once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.both_brokers import Kafka
from tests.support.broker_processes import Broker, make_broker
from tests.support.clients import make_producer, make_topic, send
from tests.support.share_consumers import Delivered, ShareConsumers
from tests.support.share_session import make_group

pytestmark = pytest.mark.usefixtures("apache_asked_for")


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    running = make_broker(request.param, tmp_path / "broker")
    running.start()
    yield running
    running.close()


@pytest.fixture
def consumers(broker: Broker) -> Iterator[ShareConsumers]:
    with ShareConsumers(broker.address) as opened:
        yield opened


def texts(numbers: range) -> list[str]:
    return [f"{number:03}" for number in numbers]


# Rules K.4/5 and K.4/6.
def test_accepted_records_stay_accepted_and_others_are_delivered_again(broker: Broker, consumers: ShareConsumers):
    kafka = Kafka(broker.address)
    topic, group = make_topic(kafka), make_group(kafka, share_record_lock_duration_ms="15000")
    send(make_producer(kafka), topic, [text.encode() for text in texts(range(10))], partition=0)
    member = consumers.open(topic, group, share_acknowledgement_mode="explicit")
    first = member.take(10)
    assert [each.value for each in first] == texts(range(10))
    for number, kind in ((0, "ACCEPT"), (1, "ACCEPT"), (5, "ACCEPT"), (7, "RELEASE"), (9, "REJECT")):
        member.acknowledge(first[number], kind)
    assert member.commit() == {"0": ""}
    broker.kill()
    broker.start()
    consumers.kill()
    with ShareConsumers(broker.address) as others:
        heir = others.open(topic, group, share_acknowledgement_mode="explicit")
        again = heir.take(6)
        assert sorted(each.value for each in again) == [f"{number:03}" for number in (2, 3, 4, 6, 7, 8)]
        # A fetch of the first member may have taken the released record once more before it was killed.
        assert {each.value: each.delivery_count for each in again}["007"] >= 2
        for each in again:
            heir.acknowledge(each)
        assert heir.commit() == {"0": ""}
        send(make_producer(kafka), topic, [b"010"], partition=0)
        [last] = heir.take(1)
        assert last.value == "010"
        heir.acknowledge(last)
        heir.close()


# Rule K.4/5.
def test_consumer_goes_on_after_a_crash_of_the_broker(broker: Broker, consumers: ShareConsumers):
    kafka = Kafka(broker.address)
    topic, group = make_topic(kafka), make_group(kafka, share_record_lock_duration_ms="15000")
    send(make_producer(kafka), topic, [text.encode() for text in texts(range(20))], partition=0)
    member = consumers.open(topic, group, share_acknowledgement_mode="explicit", max_poll_records="5")
    accepted: list[str] = []

    def accept(delivered: list[Delivered]) -> None:
        for each in delivered:
            member.acknowledge(each)
        if delivered and set(member.commit().values()) <= {""}:
            accepted.extend(each.value for each in delivered)

    while not accepted:
        accept(member.poll())
    acquired = member.poll()
    broker.kill()
    broker.start()
    accept(acquired)
    while len(set(accepted)) < 20:
        accept(member.poll())
    assert sorted(accepted) == texts(range(20)), "each is accepted once"
    member.close()
