"""Check that the transaction in a reader's way is named, with a way to end it."""

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.source.blocker import name_blocker
from spark_eos.source_options import batch_options
from tests.spark_eos.source_data import commit, create_topic, send, transactional_producer


def test_the_oldest_open_transaction_is_named(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    commit(transactional_producer(kafka_address), topic, ["a", "b"])
    first = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-first"})
    second = transactional_producer(kafka_address, **{"transactional.id": f"{topic}-second"})
    for producer in (first, second):
        producer.begin_transaction()
        send(producer, topic, ["open"])
    options = batch_options({"kafka.bootstrap.servers": kafka_address, "subscribe": topic})
    with KafkaClient(options.client) as client:
        told = name_blocker(client, TopicPartition(topic, 0))
        assert f"It is the transaction of '{topic}-first'" in told
        assert "Ongoing for" in told
        assert f"--bootstrap-server {kafka_address} abort --topic {topic} --partition 0 --start-offset 3" in told
        first.abort_transaction(30)
        assert f"'{topic}-second'" in name_blocker(client, TopicPartition(topic, 0))
        second.abort_transaction(30)
        assert name_blocker(client, TopicPartition(topic, 0)) == "It ended meanwhile."


@pytest.mark.parametrize("address", ["127.0.0.1:1"])
def test_no_answer_is_no_failure(address: str) -> None:
    options = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.default.api.timeout.ms": "300"}
    with KafkaClient(batch_options(options).client) as client:
        assert "could not be named" in name_blocker(client, TopicPartition("t", 0))
