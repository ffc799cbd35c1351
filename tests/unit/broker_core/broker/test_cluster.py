"""The cluster without sockets: responses are durable, waiting requests complete, pipelined ones keep their order."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from broker_core.broker import handlers
from broker_core.broker.apis import SERVED
from broker_core.errors import ErrorCode
from broker_core.installed import parts
from broker_core.records.header import iter_headers
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition
from broker_core.wire import messages as m
from tests.support.broker_core.requests import (
    TOPIC,
    end_transaction,
    fetch,
    fetched,
    init_producer,
    produced,
    records,
    transactional,
)
from tests.support.direct import DirectClient, direct_cluster


@pytest.fixture
def client(storage):
    cluster = direct_cluster(storage)
    cluster.controller.create_topic(TOPIC, 1)
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    return DirectClient(cluster)


def test_each_declared_api_is_served_and_no_key_is_declared_twice():
    modules = [import_module(f"{handlers.__name__}.{each.name}") for each in iter_modules(handlers.__path__)]
    declared = [api.served.key for module in (*modules, *parts("apis")) for api in getattr(module, "APIS", ())]
    assert sorted(declared) == sorted(SERVED)


# Rule J.5/12.
@pytest.mark.parametrize(("partitions", "error"), [("9999", 0), ("10000", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
def test_topic_that_is_created_by_its_use_has_a_limit_too(partitions, error, caplog):
    client = DirectClient(direct_cluster(settings={"num.partitions": partitions}))
    topics = [m.MetadataRequest.MetadataRequestTopic(name="new")]
    [topic] = client.ask(m.MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9).topics
    assert topic.error_code == error
    message = "topic new is not created: num.partitions=10000: a topic is created with 9999 at most"
    assert [each.message for each in caplog.records if "not created" in each.message] == [message] * bool(error)


def test_acknowledged_record_survives_a_crash(client, storage):
    assert produced(client, records(3)).error_code == 0
    storage.crash()
    again = DirectClient(direct_cluster(storage))
    assert [h.record_count for _, h in iter_headers(fetched(again, 0).records)] == [3]


def test_record_acknowledged_without_flush_may_be_lost_but_leaves_a_valid_log(storage):
    cluster = direct_cluster(storage, settings={"log.flush.before.ack": "false"})
    cluster.controller.create_topic(TOPIC, 1)
    assert produced(DirectClient(cluster), records(3)).error_code == 0
    storage.crash()
    assert fetched(DirectClient(direct_cluster(storage)), 0).records in (b"", None)


def test_delayed_read_committed_fetch_waits_for_the_end_of_the_transaction(client):
    reader = DirectClient(client.cluster)
    identity = init_producer(client)
    request, version = fetch(0, max_wait_ms=5000, isolation=1)
    reader.post(request, version)
    produced(client, transactional(identity, 2), transactional_id="id", version=12)
    assert reader.take() is None
    end_transaction(client, identity, commit=False)
    partition = reader.take().responses[0].partitions[0]
    assert [(a.producer_id, a.first_offset) for a in partition.aborted_transactions] == [(identity.producer_id, 0)]
    assert partition.last_stable_offset == 3


def test_delayed_fetch_returns_empty_at_its_deadline(client):
    request, version = fetch(0, max_wait_ms=500)
    client.post(request, version)
    client.cluster.advance(client.cluster.now_ms + 499)
    assert client.take() is None
    client.cluster.advance(client.cluster.now_ms + 1)
    assert not client.take().responses[0].partitions[0].records


def test_former_leader_refuses_writes():
    cluster = direct_cluster(brokers=2)
    cluster.controller.create_topic(TOPIC, 1)
    clients = {broker: DirectClient(cluster, broker) for broker in (1, 2)}
    cluster.controller.move_leader(TopicPartition(TOPIC, 0), 2)
    refused = produced(clients[1], records(1), version=10)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 1)
    assert produced(clients[2], records(1)).error_code == 0


def test_passing_time_compacts_and_deletes_old_data():
    cluster = direct_cluster(settings={"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "1000"})
    cluster.controller.create_topic(
        TOPIC, 1, {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0"}
    )
    cluster.controller.create_topic("old", 1, {"retention.ms": "60000", "segment.bytes": "200"})
    client = DirectClient(cluster)
    for _ in range(20):
        produced(client, records(1))
    for _ in range(20):
        produced(client, records(1), topic="old")
    compacted = cluster.logs.get(TopicPartition(TOPIC, 0), cluster.now_ms)
    old = cluster.logs.get(TopicPartition("old", 0), cluster.now_ms)
    before = compacted.size_bytes
    cluster.advance(cluster.now_ms + 100_000)
    assert compacted.size_bytes < before / 2
    assert (compacted.log_start_offset, compacted.log_end_offset) == (0, 20)
    assert old.log_start_offset > 0
    assert cluster.next_deadline_ms() > cluster.now_ms
