"""The transaction that blocks a reader is named, with a way to end it."""

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.options.client import ClientOptions
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import LATEST
from spark_eos.options.source import batch_options
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import BatchReader
from spark_eos.transactions.judge import name_blocker, name_blockers
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession
from tests.support.spark_eos.source_data import (
    add_partitions,
    commit,
    delete_records,
    send,
    send_plain,
    transactional_producer,
)
from tests.support.spark_eos.source_query import running
from tests.support.waiting import wait_until


def test_oldest_open_transaction_is_reported(kafka_address: str, topic: str) -> None:
    commit(transactional_producer(kafka_address), topic, ["a", "b"])
    first = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-first"})
    second = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-second"})
    for producer in (first, second):
        producer.begin_transaction()
        send(producer, topic, ["open"])
    options = batch_options({"kafka.bootstrap.servers": kafka_address, "subscribe": topic})
    with KafkaClient(options.client) as client:
        message = name_blocker(client, TopicPartition(topic, 0))
        assert f"It is the transaction of '{topic}-first'" in message
        assert "Ongoing for" in message
        assert f"--bootstrap-server {kafka_address} force-terminate --transactional-id={topic}-first`" in message
        # The coordinator answers an abort before it writes the markers.
        first.abort_transaction(30)
        wait_until(lambda: f"'{topic}-second'" in name_blocker(client, TopicPartition(topic, 0)), "the first has ended")
        second.abort_transaction(30)
        wait_until(
            lambda: name_blocker(client, TopicPartition(topic, 0)) == "It ended in the meantime.", "none is open"
        )


def test_each_partition_of_a_hanging_transaction_has_its_own_command() -> None:
    with EmbeddedBroker(config=HANGING_SETTINGS, topics={"t": 2, "u": 2}) as broker:
        address = broker.bootstrap_servers
        with RawClient(address) as raw, KafkaClient(ClientOptions((address,))) as client:
            hanging = [TopicPartition("t", number) for number in range(2)]
            for place in hanging:
                hang(RawSession(raw, "late"), "t", Identity(987_654_321, 3), partition=place.partition)
            open_up(RawSession(raw, "live"), "u", 0, 1)
            live = [TopicPartition("u", number) for number in range(2)]
            told = list(name_blockers(client, [*hanging, *live], 5))
            assert [places for places, _ in told] == [*([each] for each in hanging), live]
            commands = OperatorCommands((address,))
            for place, (_, words) in zip(hanging, told, strict=False):
                assert f"`{commands.abort(place, 0)}` ends it" in words
            assert [places for places, _ in name_blockers(client, hanging, 1)] == [hanging[:1]], "one warning at most"


def test_deleting_records_of_an_open_transaction_is_no_loss(
    kafka_address: str, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    send_plain(kafka_address, topic, ["before", "before"])
    # One record batch: the last stable offset is its base offset, below the log start.
    producer = transactional_producer(kafka_address, **{"linger.ms": 5_000})
    producer.begin_transaction()
    send(producer, topic, range(8))
    delete_records(kafka_address, topic, 5)
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": topic}
    place = TopicPartition(topic, 0)
    with KafkaClient(batch_options(options).client) as client:
        wait_until(
            lambda: OffsetLookup(client).offsets({place: LATEST}, IsolationLevel.READ_COMMITTED) == {place: 2},
            "the last stable offset is below the log start",
        )
    assert BatchReader(options, source_schema(False)).partitions() == []
    assert f"{topic}-0: an open transaction hides all records from the start of the read, offset 5" in caplog.text
    assert "It is the transaction of 'id-" in caplog.text
    with (
        running(kafka_address, subscribe=topic, startingOffsets="earliest") as query,
        running(kafka_address, subscribe=topic, startingOffsets="latest") as late,
    ):
        assert query.texts() == late.texts() == []
        producer.commit_transaction(30)
        for each in (query, late):
            assert wait_until(each.texts, "the transaction") == ["3", "4", "5", "6", "7"]


def test_batch_read_that_ends_at_an_old_transaction_names_it(
    kafka_address: str, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """A job that reads the whole topic each night gets the same rows each time, behind a transaction that hangs."""
    add_partitions(kafka_address, topic, 2)
    send_plain(kafka_address, topic, "ab")
    send_plain(kafka_address, topic, "x", partition=1)
    producer = transactional_producer(kafka_address)
    producer.begin_transaction()
    for partition in range(2):
        send(producer, topic, ["open"], partition=partition)
    send_plain(kafka_address, topic, "c")
    options = {"kafka.bootstrap.servers": kafka_address, "subscribe": topic}
    assert len(BatchReader(options, source_schema(False)).partitions()) == 2
    assert "open transaction" not in caplog.text, "each running producer has one now and then"
    assert len(BatchReader(options | {"lagWarningAfter": "1ms"}, source_schema(False)).partitions()) == 2
    assert f"from these offsets on, so the read ends there: {topic}-0 at 2, {topic}-1 at 1. It is the tr" in caplog.text
    producer.abort_transaction(30)


@pytest.mark.parametrize("address", ["127.0.0.1:1"])
def test_unanswered_lookup_is_not_a_failure(address: str) -> None:
    options = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.default.api.timeout.ms": "300"}
    with KafkaClient(batch_options(options).client) as client:
        assert "could not be identified" in name_blocker(client, TopicPartition("t", 0))
