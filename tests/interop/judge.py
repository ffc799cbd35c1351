"""Topics and the state of brokers, read without the client under test."""

import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AbortTransactionSpec

from broker_core import EmbeddedBroker
from broker_core.broker.journals import TopicJournal
from broker_core.coordinator.transactions.records import TransactionImage, encode_value
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import LAST_CLIENT_EPOCH, TRANSACTION_STATE_TOPIC, TransactionState, coordinator_partition
from broker_core.wire import messages as m
from tests.interop.driver import END, ClientError, TransactionalProducer
from tests.support.both_brokers import SETTINGS
from tests.support.clients import admin, end_offset, make_producer, make_topic, send, wait_for_end_offset
from tests.support.interop_brokers import Broker
from tests.support.protocols import REPAIRER, V2, state_record
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.waiting import wait_until

# The clients' names for PRODUCER_FENCED and INVALID_PRODUCER_EPOCH: another producer has their transactional id, or the
# coordinator has ended their transaction.
FENCED = frozenset(
    {
        "ProducerFencedException",
        "InvalidProducerEpochException",
        "_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "ProducerFencedError",
        "InvalidProducerEpochError",
        "ProducerFenced",
        "InvalidProducerEpoch",
    }
)
# The call had no response in time.
TIMED_OUT = frozenset({"TimeoutException", "_TIMED_OUT", "KafkaTimeoutError", "TimeoutError"})
# The coordinator is unable to respond now, and the client has given up; or it failed without a reason.
UNABLE = frozenset(
    {
        "COORDINATOR_NOT_AVAILABLE",
        "CoordinatorNotAvailableException",
        "GROUP_COORDINATOR_NOT_AVAILABLE",
        "UnknownServerException",
        "UNKNOWN",
        "UnknownError",
    }
)
LARGEST_BYTES = 1_048_588
# The coordinator has ended the transaction, and the client was not yet fenced.
ENDED = frozenset({"CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"})
# The coordinator has forgotten the transactional id.
FORGOTTEN = frozenset(
    {
        "InvalidPidMappingException",
        "INVALID_PRODUCER_ID_MAPPING",
        "InvalidProducerIdMappingError",
        "InvalidProducerIdMapping",
    }
)

__all__ = [
    "ENDED",
    "FENCED",
    "FORGOTTEN",
    "TIMED_OUT",
    "UNABLE",
    "Broker",
    "abort_as_administrator",
    "delete_topic",
    "end",
    "end_offset",
    "exhaust_epochs",
    "forgets",
    "identity",
    "is_refused",
    "make_topic",
    "producers_of",
    "refusing_journal",
    "send_and_commit",
    "state_of",
    "wait_for_end_offset",
    "write",
]


class Identity(NamedTuple):
    """A producer as its coordinator knows it."""

    producer_id: int
    producer_epoch: int


def is_refused(act: Callable[[], object], names: Set[str]) -> None:
    """Check that a client raises one of these errors and no other."""
    with pytest.raises(ClientError) as failure:
        act()
    assert failure.value.name in names, failure.value


def send_and_commit(producer: TransactionalProducer, topic: str, value: str) -> None:
    """Finish a transaction that must be refused; librdkafka drops the records first and then raises the error."""
    try:
        producer.send(topic, value)
    except ClientError as failure:
        if failure.name != "_PURGE_QUEUE":
            raise
    producer.commit()


def write(kafka: Broker, topic: str, *values: str, partition: int = 0) -> None:
    """Write records outside of any transaction."""
    send(make_producer(kafka), topic, [value.encode() for value in values], partition=partition)


def end(kafka: Broker, topic: str, partitions: int = 1) -> None:
    """Write the last record to each partition, at which readers may stop."""
    producer = make_producer(kafka)
    for partition in range(partitions):
        send(producer, topic, [END.encode()], partition=partition)


def delete_topic(kafka: Broker, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = admin(kafka)
    client.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in client.list_topics(timeout=60).topics, f"{topic} is gone")


def described(kafka: Broker, transactional_id: str) -> Any:
    """Return the coordinator's description of a transactional id."""
    with RawClient(kafka.bootstrap_servers) as client:
        answer = client.send(m.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    return answer.transaction_states[0]


def forgets(kafka: Broker, transactional_id: str) -> None:
    """Wait until the coordinator has forgotten a transactional id."""
    wait_until(
        lambda: described(kafka, transactional_id).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"{transactional_id} is forgotten",
    )


def identity(kafka: Broker, transactional_id: str) -> Identity:
    """Return the producer id and epoch that the coordinator currently has."""
    found = described(kafka, transactional_id)
    assert found.error_code == ErrorCode.NONE, found
    return Identity(found.producer_id, found.producer_epoch)


def state_of(kafka: Broker, transactional_id: str) -> str:
    """Return the state that the coordinator reports."""
    return str(described(kafka, transactional_id).transaction_state)


def producers_of(kafka: Broker, topic: str) -> list[Identity]:
    """Return the producers that partition 0 remembers."""
    form = m.DescribeProducersRequest.TopicRequest
    with RawClient(kafka.bootstrap_servers) as client:
        answer = client.send(m.DescribeProducersRequest(topics=[form(name=topic, partition_indexes=[0])]), 0)
    return [Identity(each.producer_id, each.producer_epoch) for each in answer.topics[0].partitions[0].active_producers]


def abort_as_administrator(kafka: Broker, topic: str, transactional_id: str) -> None:
    """End an open transaction in partition 0 as operators end a hanging one, with kafka-python's admin client."""
    client = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        client.abort_transaction(AbortTransactionSpec(TopicPartition(topic, 0), *identity(kafka, transactional_id)))
    finally:
        client.close()


@contextmanager
def refusing_journal(kafka: Broker) -> Iterator[None]:
    """Make the transaction coordinators unable to record anything in the block.

    `broker_core` gets too few replicas for the journal. Apache Kafka never needs more replicas than exist, so there the
    journal accepts no record.
    """
    if isinstance(kafka, EmbeddedBroker):
        append = TopicJournal.append

        def refuse(journal: TopicJournal, *arguments: Any, **named: Any) -> int:
            if journal.topic == TRANSACTION_STATE_TOPIC:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the test refuses records")
            return append(journal, *arguments, **named)

        with mock.patch.object(TopicJournal, "append", refuse):
            yield
        return
    _limit_records(kafka, 1)
    try:
        yield
    finally:
        _limit_records(kafka, LARGEST_BYTES)


def _limit_records(kafka: Broker, size_bytes: int) -> None:
    client, key = admin(kafka), "max.message.bytes"
    change = ConfigResource(
        ResourceType.TOPIC,
        TRANSACTION_STATE_TOPIC,
        incremental_configs=[ConfigEntry(key, str(size_bytes), incremental_operation=AlterConfigOpType.SET)],
    )
    client.incremental_alter_configs([change])[change].result(60)
    place = ConfigResource(ResourceType.TOPIC, TRANSACTION_STATE_TOPIC)
    wait_until(lambda: client.describe_configs([place])[place].result(60)[key].value == str(size_bytes), "in force")


def exhaust_epochs(kafka: Broker, transactional_id: str) -> Identity:
    """Write the record that 32,764 transactions would have left, which the coordinator applies when it loads it.

    One epoch is left, for the next producer.
    """
    now_ms = int(time.time() * 1000)
    with RawClient(kafka.bootstrap_servers, client_id=REPAIRER) as client:
        producer_id = RawSession(client, transactional_id).init()[1].producer_id
        image = TransactionImage(
            producer_id, LAST_CLIENT_EPOCH - 1, 60_000, TransactionState.EMPTY, frozenset(), now_ms
        )
        partition = coordinator_partition(transactional_id, int(SETTINGS["transaction.state.log.num.partitions"]))
        error, _ = RawSession(client, None).produce(
            TRANSACTION_STATE_TOPIC,
            state_record(transactional_id, encode_value(image, V2), now_ms),
            version=9,
            partition=partition,
        )
    assert error == ErrorCode.NONE
    return Identity(producer_id, LAST_CLIENT_EPOCH)
