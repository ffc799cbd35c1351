"""`produce`, `records`, `wait_for_records` and `group` of the embedded broker, which need no Kafka client."""

import doctest
import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from broker_core import EmbeddedBroker, ProducerRecord
from broker_core.testing import data_controls, groups, inspection_controls
from broker_core.types import TopicPartition
from tests.support.broker_core.broker_command import ROOT
from tests.support.broker_core.produce_consume import consume

DEADLINE_S = 30


@pytest.fixture(scope="module")
def shared():
    with EmbeddedBroker(topics={"four": 4}) as broker:
        yield broker


def test_records_come_back_as_they_were_written(shared):
    shared.create_topic("all-fields", 2)
    sent = [
        b"value",
        "text",
        None,
        ("key", "value"),
        (b"key", None, {"h": b"1", "n": None}),
        ("key", "late", [("h", "1"), ("h", "2")], 5, 1),
        ProducerRecord(value="named", partition=1),
    ]
    places = shared.produce("all-fields", sent, partition=0)
    assert [(each.partition, each.offset) for each in places] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (1, 0),
        (1, 1),
    ]
    found = shared.records("all-fields")
    assert found.values == [b"value", b"text", None, b"value", None, b"late", b"named"]
    assert found.keys == [None, None, None, b"key", b"key", b"key", None]
    assert found[4].headers == (("h", b"1"), ("n", None))
    assert found[5].headers == (("h", b"1"), ("h", b"2"))
    assert (found[5].timestamp_ms, places[5].timestamp_ms) == (5, 5)
    assert [each.timestamp_ms for each in found[:5]] == [each.timestamp_ms for each in places[:5]]
    assert sorted(filter(None, consume(shared.bootstrap_servers, "all-fields", 7))) == sorted(
        filter(None, found.values)
    )


def test_a_new_transaction_fences_the_client_of_the_same_id(kafka, kafka_producer):
    producer = kafka_producer({"transactional.id": "t"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("in", b"client's")
    producer.flush(DEADLINE_S)
    kafka.produce("in", b"test's", transactional="t")
    assert kafka.records("in", isolation="read_committed").values == [b"test's"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_shows_members_offsets_and_lag(kafka, kafka_consumer, protocol):
    kafka.create_topic("in", 2)
    group = kafka.group("g")
    assert (group.state, group.members, group.committed, group.lag) == ("Dead", (), {}, {})
    with pytest.raises(AssertionError, match="group 'g' is not stable with any member after 0 s: it is Dead"):
        group.wait_stable(timeout=0)
    kafka.produce("in", [(None, "1", (), None, 0), (None, "2", (), None, 1), (None, "3", (), None, 1)])
    consumer: Consumer = kafka_consumer(
        "in", {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False, "client.id": "reader"}
    )
    got = [consumer.poll(DEADLINE_S) for _ in range(3)]
    assert all(got)
    (member,) = group.wait_stable(members=1).members
    assert member.client_id == "reader"
    assert member.partitions == {TopicPartition("in", 0), TopicPartition("in", 1)}
    assert (group.lag, group.total_lag) == ({("in", 0): 1, ("in", 1): 2}, 3)
    with pytest.raises(AssertionError, match="not caught up; records left: 1 of in-0, 2 of in-1"):
        group.wait_caught_up(timeout=0)
    consumer.commit(asynchronous=False)
    assert group.wait_caught_up().committed == {("in", 0): 1, ("in", 1): 2}
    kafka.produce("in", [(None, "4", (), None, 0)], transactional=True, end="abort")
    assert group.lag == {("in", 0): 2, ("in", 1): 0}
    group.wait_caught_up(timeout=0)


def test_lag_of_a_group_that_reads_nothing_is_refused(kafka):
    """As 0 it would let a test pass whose group is misspelled, or has not begun to read."""
    kafka.produce("in", ["1"])
    for group in (kafka.group("biling"), kafka.group("biling").view()):
        with pytest.raises(KeyError, match="group 'biling' has no lag: it is Dead, with no committed offset"):
            _ = group.total_lag


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_readers_that_left_are_not_caught_up_where_they_committed_nothing(kafka, kafka_consumer, protocol):
    kafka.create_topic("in", 2)
    kafka.produce("in", [(None, "1", (), None, 0), (None, "2", (), None, 1)])
    reader: Consumer = kafka_consumer("in", {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False})
    assert all(reader.poll(DEADLINE_S) for _ in range(2))
    reader.commit(offsets=[Position("in", 0, 1)], asynchronous=False)
    reader.close()
    with pytest.raises(AssertionError, match="not caught up; records left: 1 of in-1"):
        kafka.group("g").wait_caught_up(timeout=0)


def test_reader_without_a_subscription_is_caught_up_with_what_it_committed(kafka, kafka_consumer):
    kafka.create_topic("in", 2)
    kafka.produce("in", [(None, "1", (), None, 0), (None, "2", (), None, 1)])
    kafka_consumer({"group.id": "g"}).commit(offsets=[Position("in", 0, 1)], asynchronous=False)
    kafka.group("g").wait_caught_up(timeout=0)


def test_controls_of_records_cannot_be_used_in_a_faults_function(kafka, kafka_producer):
    errors = []

    def act(_: object) -> None:
        try:
            kafka.produce("in", ["no"])
        except RuntimeError as error:
            errors.append(str(error))

    with kafka.fault(api="Produce", action=act, times=1):
        producer = kafka_producer()
        producer.produce("in", b"yes")
        assert producer.flush(DEADLINE_S) == 0
    assert errors == ["the function of a fault cannot do this: it would wait for its own thread, the brokers'"]
    assert kafka.records("in").values == [b"yes"]


def test_records_and_groups_need_no_librdkafka(tmp_path):
    """The program cannot import confluent-kafka; pytest's own process has imported it."""
    (tmp_path / "seed.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "seed.csv").write_text("id\n2\n")
    program = """
import sys
sys.modules["confluent_kafka"] = None
from kafka import KafkaConsumer
from broker_core import EmbeddedBroker
with EmbeddedBroker(topics={"t": 1}) as kafka:
    kafka.produce("t", ["0"], transactional=True)
    kafka.load("t", "seed.jsonl")
    kafka.load("t", "seed.csv", value="id")
    print(kafka.wait_for_records("t", 3).values, kafka.records("t", isolation="read_uncommitted").values)
    with KafkaConsumer(
        "t", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.poll(timeout_ms=30_000, max_records=1)
        print(kafka.groups, len(kafka.group("g").wait_stable(timeout=30).members))
        consumer.commit()
        print(list(kafka.group("g").committed.values()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    values = [b"0", b'{"id": 1}', b"2"]
    assert ran.stdout.splitlines() == [f"{values} {values}", "['g'] 1", "[1]"]


@pytest.mark.parametrize("module", [data_controls, groups, inspection_controls])
def test_docstring_examples_are_correct(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(module, extraglobs={"EmbeddedBroker": EmbeddedBroker})
    assert (found.failed, found.attempted > 0) == (0, True)
