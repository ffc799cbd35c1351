"""Prepare topics and look at brokers from outside: what a scenario needs that is not the client's business."""

from collections.abc import Mapping

from broker_core.errors import ErrorCode
from broker_core.wire import messages as m
from tests.conformance.clients import admin, end_offset, make_producer, make_topic, send, wait_for_end_offset
from tests.interop.brokers import Bouncing, Running
from tests.interop.driver import END
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

Broker = Running | Bouncing
# What the clients call it when another producer has their transactional id, or the coordinator has ended their
# transaction: PRODUCER_FENCED and INVALID_PRODUCER_EPOCH.
FENCED = {
    "ProducerFencedException", "InvalidProducerEpochException",
    "_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED",
    "ProducerFencedError", "InvalidProducerEpochError",
    "ProducerFenced", "InvalidProducerEpoch",
}

__all__ = ["FENCED", "delete_topic", "end", "end_offset", "forgets", "make_topic", "wait_for_end_offset", "write"]


def write(kafka: Broker, topic: str, *values: str, partition: int = 0) -> None:
    """Write records outside of any transaction."""
    send(make_producer(kafka), topic, [value.encode() for value in values], partition=partition)


def end(kafka: Broker, topic: str, partitions: int = 1) -> None:
    """Write the record at which readers may stop to each partition."""
    producer = make_producer(kafka)
    for partition in range(partitions):
        send(producer, topic, [END.encode()], partition=partition)


def delete_topic(kafka: Broker, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = admin(kafka)
    client.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in client.list_topics(timeout=60).topics, f"{topic} is gone")


def forgets(kafka: Broker, transactional_id: str) -> None:
    """Wait until the coordinator has forgotten a transactional id."""
    def code() -> Mapping[str, int] | int:
        answer = client.send(m.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        return int(answer.transaction_states[0].error_code)

    with RawClient(kafka.bootstrap_servers) as client:
        wait_until(lambda: code() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{transactional_id} is forgotten")
