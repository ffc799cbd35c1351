"""Partitions without a leader and ids without a coordinator for a while: what clients see, and what continues."""

import doctest

import pytest
from confluent_kafka import Producer

import broker_core.server.cluster_controls
from broker_core import EmbeddedBroker
from tests.support.clients import make_transactional_producer

# With one partition each, every id and group is in partition 0.
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def begun(kafka: EmbeddedBroker) -> Producer:
    producer = make_transactional_producer(kafka, "t")
    producer.begin_transaction()
    producer.produce("in", b"v", partition=0)
    assert producer.flush(30) == 0
    return producer


def test_client_commits_when_its_coordinator_returns() -> None:
    with EmbeddedBroker(brokers=3, topics={"in": 1}, config=FEW) as kafka:
        producer = begun(kafka)
        with kafka.without_coordinator(transactional_id="t") as outage:
            assert kafka.coordinator(transactional_id="t") == -1
            with pytest.raises(KeyError, match="unknown to every coordinator"):
                kafka.transaction("t")
            with pytest.raises(AssertionError, match="partition __transaction_state-0 has no leader"):
                kafka.assert_quiescent()
            asked = len(kafka.requests(api="FindCoordinator"))
            with kafka.fault(api="FindCoordinator", nth=3, action=lambda _: outage.end()):
                producer.commit_transaction(60)
            assert len(kafka.requests(api="FindCoordinator")) > asked
        kafka.assert_quiescent()
        assert kafka.transaction("t").state == "CompleteCommit"


def test_client_writes_when_the_leader_returns() -> None:
    with EmbeddedBroker(brokers=3, topics={"in": 1}, config=FEW) as kafka:
        producer = begun(kafka)
        with kafka.without_leader(("in", 0)) as outage:
            producer.produce("in", b"w", partition=0)
            with kafka.fault(api="Metadata", nth=2, action=lambda _: outage.end()):
                assert producer.flush(60) == 0
            outage.end()
        producer.commit_transaction(60)
        assert kafka.partition("in", 0).last_stable_offset == 3


def test_docstring_examples_run() -> None:
    result = doctest.testmod(broker_core.server.cluster_controls)
    assert result.failed == 0 and result.attempted >= 3
