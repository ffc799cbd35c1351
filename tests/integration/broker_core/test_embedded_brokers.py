"""Brokers of an embedded cluster stop and start, alone and together, and their partitions get other leaders."""

import doctest
import socket
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import broker_core.embedded
from broker_core import EmbeddedBroker
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from tests.support.clients import make_transactional_producer
from tests.support.messages import filled
from tests.support.raw_client import RawClient

FEW = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}


def begun(kafka, timeout_ms=60_000):
    producer = make_transactional_producer(kafka, "t", transaction_timeout_ms=timeout_ms)
    producer.begin_transaction()
    producer.produce("in", b"v", partition=0)
    assert producer.flush(30) == 0
    return producer


def refuses(address):
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_partitions_of_a_stopped_broker_move_away_and_return(how):
    with EmbeddedBroker(brokers=3, topics={"in": 6}, config=FEW) as kafka:
        producer = begun(kafka)
        coordinator = kafka.coordinator(transactional_id="t")
        before = [kafka.leader(("in", each)) for each in range(6)]
        addresses = kafka.bootstrap_servers.split(",")
        getattr(kafka.broker(coordinator), how)()
        assert not kafka.broker(coordinator).is_running
        assert refuses(addresses[coordinator - 1])
        assert coordinator not in {kafka.leader(("in", each)) for each in range(6)}
        assert kafka.coordinator(transactional_id="t") != coordinator
        assert set(
            AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}).list_topics(timeout=30).brokers
        ) == {1, 2, 3} - {coordinator}
        producer.commit_transaction(30)
        assert kafka.transaction("t").state == "CompleteCommit"
        kafka.broker(coordinator).start()
        assert [kafka.leader(("in", each)) for each in range(6)] == before
        assert kafka.coordinator(transactional_id="t") == coordinator
        assert kafka.bootstrap_servers.split(",") == addresses and not refuses(addresses[coordinator - 1])
        producer.begin_transaction()
        producer.produce("in", b"w", partition=0)
        producer.commit_transaction(30)


def append_unsynced(cluster):
    log = cluster.logs.get(TopicPartition("in", 0), cluster.now_ms)
    log.append_as_leader(build_batch([NewRecord(None, b"lost")]), now_ms=cluster.now_ms, leader_epoch=0)


def test_crash_of_all_brokers_loses_only_unsynced_data():
    with EmbeddedBroker(brokers=2, topics={"in": 1}, config=FEW) as kafka:
        producer = begun(kafka)
        kafka._call(append_unsynced)
        assert kafka.partition("in", 0).log_end_offset == 2
        addresses = kafka.bootstrap_servers
        kafka.crash()
        assert all(refuses(each) for each in addresses.split(","))
        with pytest.raises(RuntimeError, match="restart"):
            kafka.partition("in", 0)
        kafka.restart()
        assert kafka.bootstrap_servers == addresses
        assert kafka.partition("in", 0).log_end_offset == 1
        producer.commit_transaction(30)
        assert kafka.transaction("t").state == "CompleteCommit"


# Time


def test_virtual_time_advances_a_transaction_to_its_timeout():
    with EmbeddedBroker(topics={"in": 1}, config=FEW, clock="virtual") as kafka:
        begun(kafka, timeout_ms=60_000)
        kafka.clock.advance(59)
        assert kafka.transaction("t").state == "Ongoing"
        kafka.clock.advance(11)
        assert kafka.transaction("t").state == "CompleteAbort"
        kafka.assert_quiescent()
        assert [kind for kind in kafka.partition("in", 0).dump().splitlines() if "ABORT" in kind]


def test_each_due_event_sees_its_own_time():
    with EmbeddedBroker(topics={"in": 1}, config=FEW, clock="virtual") as kafka:
        begun(kafka, timeout_ms=30_000)
        start = kafka.clock.now_ms()
        kafka.clock.advance(3600)
        aborted = kafka._call(lambda cluster: cluster.logs.get(TopicPartition("in", 0), 0).producer_state.entries[0])
        assert 30_000 <= aborted.last_timestamp_ms - start <= 45_000
        assert kafka.clock.now_ms() - start == 3_600_000


def test_members_expire_and_segments_age_by_virtual_time():
    settings = FEW | {"log.retention.ms": "100000", "log.retention.check.interval.ms": "1000"}
    with EmbeddedBroker(topics={"in": 1}, config=settings, clock="virtual") as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            join = filled(
                m.JoinGroupRequest,
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b""}],
            )
            assert client.send(m.FindCoordinatorRequest(key="g"), 3).error_code == 0
            member = client.send(join, 2).member_id
            beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
            kafka.clock.advance(9)
            assert client.send(beat, 0).error_code != 25
            kafka.clock.advance(60)
            assert client.send(beat, 0).error_code == 25
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("in", b"old", timestamp=kafka.clock.now_ms())
        producer.flush(30)
        kafka.clock.advance(99)
        assert kafka.partition("in", 0).log_start_offset == 0
        kafka.clock.advance(10)
        assert kafka.partition("in", 0).log_start_offset == 1


def test_delayed_fetch_is_answered_while_virtual_time_stands_still():
    with EmbeddedBroker(topics={"in": 1}, clock="virtual") as kafka, RawClient(kafka.bootstrap_servers) as client:
        fetch = filled(
            m.FetchRequest,
            replica_id=-1,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1000,
            forgotten_topics_data=[],
            topics=[{"topic": "in", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
        )
        kafka.clock.advance(600)
        asked = monotonic()
        before = kafka.clock.now_ms()
        client.post(fetch, 12)
        kafka.wait_for(lambda: kafka.requests(api="Fetch"))
        with pytest.raises(AssertionError, match=r"1 request in the purgatory"):
            kafka.assert_quiescent()
        assert client.collect(fetch).error_code == 0
        assert monotonic() - asked >= 0.19
        assert kafka.clock.now_ms() == before
        kafka.assert_quiescent()


def test_consumer_group_reads_while_virtual_time_stands_still():
    with EmbeddedBroker(topics={"in": 1}, config=FEW, clock="virtual") as kafka:
        begun(kafka).commit_transaction(30)
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["in"])
        try:
            assert [message.value() for message in consumer.consume(1, timeout=30)] == [b"v"]
        finally:
            consumer.close()


# Randomness, and the rest


def test_partition_shows_offsets_producers_and_transactions():
    with EmbeddedBroker(topics={"in": 1}, config=FEW) as kafka:
        producer = begun(kafka)
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce("in", b"open", b"key")
        producer.flush(30)
        seen, transaction = kafka.partition("in", 0), kafka.transaction("t")
        marks = (seen.log_start_offset, seen.last_stable_offset, seen.high_watermark, seen.log_end_offset)
        assert marks == (0, 2, 3, 3)
        assert [each.first_offset for each in seen.open_transactions] == [2]
        assert [(each.first_offset, each.last_offset) for each in seen.aborted_transactions] == [(0, 1)]
        assert [each.producer_id for each in seen.producers] == [transaction.producer_id]
        assert (transaction.state, transaction.timeout_ms) == ("Ongoing", 60_000)
        assert transaction.partitions == {TopicPartition("in", 0)}
        listing = seen.dump()
        assert "LSO 2, HW 3" in listing and "ABORT" in listing and "'key'='open'" in listing
        assert kafka.written_partitions() == [TopicPartition("in", 0)]
        kafka.restart()
        assert kafka.written_partitions() == [TopicPartition("in", 0)]


def test_docstring_examples_run():
    result = doctest.testmod(broker_core.embedded)
    assert result.failed == 0 and result.attempted >= 7
