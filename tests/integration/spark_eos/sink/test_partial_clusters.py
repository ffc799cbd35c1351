"""Clusters that support only a part of Kafka's APIs: what is needed is refused at the start, the rest degrades."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from broker_core import EmbeddedBroker
from broker_core.broker.apis import SERVED
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.needed_apis import SINK_APIS, NeededApi
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import EosKafkaError, TopicError, TransactionError, UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.sink import decision_writer
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.sink.messages import Prepared
from spark_eos.sink.naming import group_id
from tests.support.broker_core.served_apis import leave_out, limit
from tests.support.spark_eos.client_world import make_topic, unique
from tests.support.spark_eos.sink_world import World

NEEDED = [pytest.param(api, id=api.name) for api in SINK_APIS if not api.without]
OTHERS = [key for key in sorted(SERVED) if key not in {int(api.request.API_KEY) for api in SINK_APIS}]
API_VERSIONS = 18


@contextmanager
def world_without(monkeypatch: pytest.MonkeyPatch, *keys: int, transaction_version: int = 2) -> Iterator[World]:
    """Give a query on a broker that does not support some APIs; its topics exist."""
    with EmbeddedBroker(transaction_version=transaction_version) as broker:
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as maker:
            world = World(broker.bootstrap_servers, maker)
        leave_out(monkeypatch, *keys)
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            world.client = client
            world.cluster = world.cluster_of(world.decisions)
            yield world


def options_of(world: World, **more: str) -> SinkOptions:
    options = {
        "kafka.bootstrap.servers": world.address,
        "topic": world.topic,
        "decisionTopic": world.decisions,
        "transactionalIdPrefix": "p",
    }
    return sink_options({**options, **more})


@pytest.mark.parametrize("api", NEEDED)
def test_missing_api_that_every_query_needs_is_found_before_data_is_sent(
    api: NeededApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = int(api.request.API_KEY)
    with EmbeddedBroker(transaction_version=api.last_level) as broker:
        leave_out(monkeypatch, key)
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            options = sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers})
            # Without Metadata the client cannot even connect.
            with pytest.raises(UnsupportedError, match=f"{api.name}|Initial metadata request requires"):
                check_cluster(client, options)


def test_version_that_is_too_old_is_found_before_data_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    key = next(int(api.request.API_KEY) for api in SINK_APIS if api.name == "OffsetFetch")
    with world_without(monkeypatch) as world:
        limit(monkeypatch, key, max_version=6)
        with KafkaClient(ClientOptions((world.address,))) as client:
            with pytest.raises(
                UnsupportedError, match=r"do not support OffsetFetch version 7\..*service that supports"
            ):
                check_cluster(client, options_of(world))


def test_no_other_api_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [key for key in OTHERS if key != API_VERSIONS]
    missing += [int(api.request.API_KEY) for api in SINK_APIS if api.without and api.name != "AddPartitionsToTxn"]
    with world_without(monkeypatch, *missing) as world:
        options = check_cluster(world.client, options_of(world))
        assert options.transaction_timeout_ms == 60_000
        world.committer("run1").commit([world.prepare("run1")], 0)
        world.committer("run2").commit([world.prepare("run2", 1)], 1)
        assert world.visible() == ["row of 0", "row of 1"]


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_query_runs_where_transactions_have_no_feature(version: str) -> None:
    with (
        EmbeddedBroker(kafka_version=version) as broker,
        KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client,
    ):
        world = World(broker.bootstrap_servers, client)
        check_cluster(client, options_of(world))
        world.committer("run1").commit([world.prepare("run1")], 0)
        world.committer("run2").commit([world.prepare("run2", 1)], 1)
        assert world.visible() == ["row of 0", "row of 1"]


def test_listing_that_is_missing_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listing = next(int(api.request.API_KEY) for api in SINK_APIS if api.name == "ListTransactions")
    with world_without(monkeypatch, listing) as world:
        for is_first in (True, False):
            check_cluster(world.client, options_of(world, jobId=unique("job")), is_first=is_first)
        assert caplog.text.count("delay readers until their timeout, because brokers do not support") == 1
        lost = world.prepare("run1", split=7)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "spark_eos"):
            world.committer("run1").commit([world.prepare("run1")], 0)
        assert caplog.text == ""
        assert world.state_of(lost) == "Ongoing", "a transaction that no list shows is left to its timeout"
        caplog.clear()
        with caplog.at_level(logging.INFO, "spark_eos"):
            committer = world.committer("run2")
            for micro_batch in (1, 2):
                committer.abort([world.prepare("run2", micro_batch)], micro_batch)
        assert caplog.text.count("because brokers do not list them") == 1


def test_abort_ends_transactions_known_by_name_where_none_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = next(int(api.request.API_KEY) for api in SINK_APIS if api.name == "ListTransactions")
    with world_without(monkeypatch, listing) as world:
        dropped, lost = world.prepare("run1"), world.prepare("run1", split=7)
        world.committer("run1").abort([dropped], 0)
        assert (world.state_of(dropped), world.state_of(lost)) == ("CompleteAbort", "Ongoing")


def test_missing_creation_of_topics_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    creation = next(int(api.request.API_KEY) for api in SINK_APIS if api.name == "CreateTopics")
    with world_without(monkeypatch, creation) as world:
        with pytest.raises(TopicError) as caught:
            check_cluster(world.client, options_of(world, decisionTopic="missing"))
        command = str(caught.value).split("`")[1]
        assert command.startswith(f"kafka-topics.sh --bootstrap-server {world.address} --create --topic missing")
        for word in ("--partitions 8", "--config cleanup.policy=compact"):
            assert word in command


def test_deleted_decision_stops_the_query_until_it_has_a_new_identity() -> None:
    with EmbeddedBroker() as broker, KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
        world = World(broker.bootstrap_servers, client)
        world.decisions = make_topic(client, cleanup_policy="delete")
        world.cluster = world.cluster_of(world.decisions)
        running = world.committer("run1")
        running.commit([world.prepare("run1")], 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def expire() -> None:
            for future in admin.delete_records([ConfluentPartition(world.decisions, 0, -1)]).values():
                future.result(30)

        expire()
        running.commit([world.prepare("run1", 1)], 1)
        expire()
        prepared = world.prepare("run2", 2)
        with pytest.raises(EosKafkaError, match=r"does not exist.*Look into the output"):
            world.committer("run2").commit([prepared], 2)
        end(world, prepared)
        for future in admin.delete_consumer_groups([group_id("p", world.query)]).values():
            future.result(30)
        prepared = world.prepare("run3", 2)
        with pytest.raises(TransactionError, match=r"decisions of .* are gone.*Look into the output"):
            world.committer("run3").commit([prepared], 2)
        world.committer("run3").abort([prepared], 2)
        world.query = unique("query")
        world.committer("run4").commit([world.prepare("run4", 2)], 2)
        assert world.visible() == ["row of 0", "row of 1", "row of 2"]


def end(world: World, prepared: Prepared) -> None:
    """Abort what a run has prepared, as its timeout does."""
    init_producer_id(world.client, prepared.transaction.transactional_id, transaction_timeout_ms=60_000)


@pytest.mark.parametrize("version", [1, 2])
def test_deleted_decision_topic_stops_the_running_query_soon(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_writer, "_FIRST_DELIVERY_MS", 1_000)
    with (
        EmbeddedBroker(transaction_version=version) as broker,
        KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client,
    ):
        world = World(broker.bootstrap_servers, client)
        running = world.committer("run1")
        running.commit([world.prepare("run1")], 0)
        broker.delete_topic(world.decisions)
        began, prepared = monotonic(), world.prepare("run1", 1)
        with pytest.raises(
            TopicError, match=f"decision topic '{world.decisions}' does not exist.*Restart the query, or"
        ):
            running.commit([prepared], 1)
        assert monotonic() - began < 30
        assert not running.cluster.open_transactions("p."), "the commit has ended them"
        assert world.visible() == ["row of 0"]
        broker.create_topic(world.decisions, 4)
        # The last transaction of each task was aborted: nothing of the micro-batch can be visible.
        world.committer("run2").commit([world.prepare("run2", 1)], 1)
        assert world.visible() == ["row of 0", "row of 1"]
