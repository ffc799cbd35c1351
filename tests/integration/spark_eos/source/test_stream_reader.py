"""The streaming reader without Spark: it is called as Spark calls it, in the same order."""

import random
import uuid

import pytest

from broker_core import EmbeddedBroker
from tests.support.spark_eos.source_data import (
    abort,
    add_partitions,
    commit,
    create_topic,
    delete_topic,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.source_query import Query, offsets_in, running
from tests.support.waiting import wait_until

STARTS = {
    "latest": ({"startingOffsets": "latest"}, []),
    "earliest": ({"startingOffsets": "earliest"}, ["a0", "a1", "b0", "b1"]),
    "offsets": ({"startingOffsets": '{"T":{"0":-2,"1":1}}'}, ["a0", "a1", "b1"]),
    "offsets at the end": ({"startingOffsets": '{"T":{"0":-1,"1":0}}'}, ["b0", "b1"]),
    "times": ({"startingOffsetsByTimestamp": '{"T":{"0":2000,"1":1000}}'}, ["a1", "b0", "b1"]),
    "one time": ({"startingTimestamp": "2000"}, ["a1", "b1"]),
}


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("subscription", ["assign", "subscribe", "subscribePattern"])
def test_every_kind_of_subscription_and_start_is_read(
    kafka_address: str, subscription: str, start: str, fail_on_data_loss: str
) -> None:
    topic = create_topic(kafka_address, 2)
    for partition, letter in enumerate("ab"):
        for number in range(2):
            value = f"{letter}{number}"
            send_plain(kafka_address, topic, [value], partition=partition, timestamp=1_000 * (number + 1))
    named = {"assign": f'{{"{topic}":[0,1]}}', "subscribe": topic, "subscribePattern": f"{topic[:-1]}."}[subscription]
    where, expected = STARTS[start]
    options = {subscription: named, "failOnDataLoss": fail_on_data_loss}
    options |= {name: value.replace("T", topic) for name, value in where.items()}
    with running(kafka_address, **options) as query:
        assert query.texts() == expected
        send_plain(kafka_address, topic, ["c"])
        assert query.texts() == ["c"]
    send_plain(kafka_address, topic, ["d"], partition=1)
    query = Query(kafka_address, query.position, **options)
    assert query.texts() == ["d"], "records written while the query was down"
    if subscription != "assign":
        add_partitions(kafka_address, topic, 3)
        send_plain(kafka_address, topic, ["e"], partition=2)
        # A broker learns of the topic a moment after the controller has answered.
        assert wait_until(query.texts, "a partition added under the query") == ["e"]
    assert query.texts() == []
    query.reader.stop()


def test_pattern_does_not_find_the_sinks_decisions_which_follow_what_is_read() -> None:
    decisions = "eos-kafka-decisions"
    with EmbeddedBroker(topics={decisions: 1, "eos-kafka-orders": 1, f"{decisions}-2": 1}) as kafka:
        for topic in (decisions, "eos-kafka-orders", f"{decisions}-2"):
            send_plain(kafka.bootstrap_servers, topic, [topic])
        with running(kafka.bootstrap_servers, subscribePattern="eos-.*", startingOffsets="earliest") as query:
            assert query.texts() == [f"{decisions}-2", "eos-kafka-orders"]
        with running(kafka.bootstrap_servers, subscribe=decisions, startingOffsets="earliest") as query:
            assert query.texts() == [decisions]


def test_min_offsets_is_waited_for(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, "abc")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    with running(kafka_address, **options) as query:
        assert query.texts() == ["a", "b", "c"], "the first micro-batch always runs"
        send_plain(kafka_address, topic, "defg")
        assert query.texts() == []
        send_plain(kafka_address, topic, "h")
        assert query.texts() == ["d", "e", "f", "g", "h"]


def test_uncommitted_records_are_read_in_micro_batches_of_three_offsets(kafka_address: str, topic: str) -> None:
    producer = transactional_producer(kafka_address)
    abort(producer, topic, ["x", "y"])  # 0..1, marker 2
    commit(producer, topic, ["a"])  # 3, marker 4
    abort(producer, topic, ["z"])  # 5, marker 6
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    with running(kafka_address, **options, **{"kafka.isolation.level": "read_uncommitted"}) as query:
        assert [query.texts() for _ in range(3)] == [["x", "y"], ["a", "z"], []]
    with running(kafka_address, **options) as query:
        assert [query.texts() for _ in range(3)] == [[], ["a"], []]


def test_latest_offset_is_reported_regardless_of_limits(kafka_address: str, topic: str) -> None:
    send_plain(kafka_address, topic, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with running(kafka_address, maxOffsetsPerTrigger="3", **options) as query:
        assert query.reader.reportLatestOffset() is None
        query.trigger()
        assert offsets_in(query.position) == {topic: {"0": 3}}
        assert query.reader.reportLatestOffset() == {topic: {"0": 10}}
        send_plain(kafka_address, topic, range(2))
        query.trigger()
        assert query.reader.reportLatestOffset() == {topic: {"0": 12}}
    with running(kafka_address, **options) as query:
        query.trigger()
        assert offsets_in(query.position) == query.reader.reportLatestOffset()


@pytest.mark.parametrize("seed", range(3))
def test_topics_are_created_deleted_and_extended_while_reading(kafka_address: str, seed: int) -> None:
    """No record is read twice, and of topics that are not deleted every record is read."""
    chance, family = random.Random(seed), f"stress-{uuid.uuid4().hex[:8]}"
    topics: dict[str, int] = {}
    written: dict[str, set[str]] = {}
    read: list[str | None] = []
    options = {"subscribePattern": f"{family}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false",
               "maxOffsetsPerTrigger": "20", "kafka.metadata.max.age.ms": "0"}  # fmt: skip
    with running(kafka_address, **options) as query:
        for step in range(40):
            choice = chance.random()
            topic = chance.choice(sorted(topics)) if topics else None
            if topic is None or choice < 0.1:
                topic = create_topic(kafka_address, 1, name=f"{family}-{step}")
                topics[topic], written[topic] = 1, set()
            elif choice < 0.15:
                delete_topic(kafka_address, topic)
                del topics[topic], written[topic]
            elif choice < 0.25:
                topics[topic] += 1
                add_partitions(kafka_address, topic, topics[topic])
            elif choice < 0.7:
                values = [f"{topic} {step} {number}" for number in range(chance.randint(1, 9))]
                send_plain(kafka_address, topic, values, partition=chance.randrange(topics[topic]))
                written[topic] |= set(values)
            else:
                read += query.texts()
        while rows := query.texts():
            read += rows
    assert len(read) == len(set(read))
    assert {value for values in written.values() for value in values} <= set(read)
