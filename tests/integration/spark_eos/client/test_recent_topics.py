"""A cached response about a topic is reused only while it is recent and the topic was usable."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import Leaders
from spark_eos.client.metadata import PartitionMetadata, RecentTopics, TopicMetadata, metadata_request
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import TopicError
from spark_eos.options.client import client_options
from tests.support.spark_eos.client_world import encoded
from tests.support.spark_eos.source_data import add_partitions


def topic(error_code: int = 0, partitions: int = 1) -> TopicMetadata:
    found = {number: PartitionMetadata(number, 1, 0, 0) for number in range(partitions)}
    return TopicMetadata("t", None, False, error_code, found)


def test_cached_topic_is_used_until_it_expires() -> None:
    recent = RecentTopics()
    assert recent.since(["t"], 0.0) is None
    recent.note({"t": topic()}, 10.0)
    assert recent.since(["t"], 10.0) == {"t": topic()}
    assert recent.since(["t"], 10.1) is None
    assert recent.since(["t", "u"], 0.0) is None


def test_expired_topics_are_evicted() -> None:
    recent = RecentTopics()
    recent.note({f"t{number}": topic() for number in range(100)}, 10.0)
    recent.note({"u": topic()}, 309.0)
    assert recent.since(["t0", "t99"], 0.0) is not None
    recent.note({"u": topic()}, 310.0)
    assert [recent.since([name], 0.0) is None for name in ("t0", "t99", "u")] == [True, True, False]


@pytest.mark.parametrize("bad", [topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic(partitions=0)])
def test_unusable_cached_topic_is_requested_again(bad: TopicMetadata) -> None:
    recent = RecentTopics()
    recent.note({"t": bad}, 10.0)
    assert recent.since(["t"], 0.0) is None


def test_topic_that_was_created_again_has_the_partitions_of_its_own() -> None:
    recent = RecentTopics()
    old, new = (replace(topic(partitions=count), topic_id=uuid.uuid4()) for count in (3, 1))
    recent.note({"t": old}, 10.0)
    assert recent.note({"t": new}, 11.0) == {"t": new}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[KafkaClient]:
    with KafkaClient(client_options({"kafka.bootstrap.servers": broker.bootstrap_servers})) as made:
        yield made


def test_writer_does_not_request_recently_cached_topics(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    ask = client.metadata

    def counted(topics: Any, **more: Any) -> Any:
        asked.append(topics)
        return ask(topics, **more)

    monkeypatch.setattr(client, "metadata", counted)
    assert client.require_topics(["t"], need_leaders=False, max_age_ms=60_000)["t"].partition_count == 3
    Leaders(client).require([TopicPartition("t", 2)])
    assert client.require_topics(["t"], need_leaders=False, max_age_ms=60_000)["t"].partition_count == 3
    assert asked == [["t"]]
    client.require_topics(["t"])
    client.require_topics(["t"], need_leaders=True, max_age_ms=60_000)
    client.require_topics(["t"], need_leaders=False)
    assert asked == [["t"]] * 4


def test_producer_keeps_only_topics_of_its_last_transaction(client: KafkaClient, broker: EmbeddedBroker) -> None:
    producer = TransactionalProducer(client)
    for number in range(5):
        broker.create_topic(f"day-{number}")
        producer.begin(init_producer_id(client, "id", transaction_timeout_ms=60_000))
        producer.send(TopicPartition(f"day-{number}", 0), encoded(["a"]))
        producer.flush()
    assert set(producer._leaders._topics) == {"day-3", "day-4"}


def test_answer_of_a_broker_that_lags_behind_takes_no_partition_away(
    client: KafkaClient, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a topic grows, and for as long as a broker is cut off, answers with the old count arrive."""

    def count() -> int:
        return client.require_topics(["t"], need_leaders=False)["t"].partition_count

    earlier = client.ask_metadata(lambda: metadata_request(["t"]))
    add_partitions(broker.bootstrap_servers, "t", 4)
    assert count() == 4
    monkeypatch.setattr(client, "ask_metadata", lambda *_, **__: earlier)
    assert count() == 4
    client.recent.forget_leader(1)
    assert count() == 4


def test_newly_added_partition_is_found(client: KafkaClient, broker: EmbeddedBroker) -> None:
    """A recent response must not make the client refuse a partition that exists now."""
    Leaders(client).require([TopicPartition("t", 2)])
    add_partitions(broker.bootstrap_servers, "t", 4)
    leaders = Leaders(client)
    leaders.require([TopicPartition("t", 3)])
    with pytest.raises(TopicError, match="has no partition 4"):
        leaders.require([TopicPartition("t", 4)])
