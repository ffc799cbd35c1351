"""Check that whatever a cluster lacks is found before any data is sent, with the way out in the text."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from broker_core.embedded import EmbeddedBroker
from spark_eos.client.connection import KafkaClient
from spark_eos.client.error_table import Api, failure
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.client_options import ClientOptions
from spark_eos.errors import AuthorizationError, BrokerError, EosKafkaError, OptionError, TopicError, UnsupportedError
from spark_eos.sink import decision_topic, preflight
from spark_eos.sink.decision_topic import ensure_decision_topic, topic_doubts, topic_problem
from spark_eos.sink.driver_identity import DriverIdentity
from spark_eos.sink.preflight import check_cluster
from spark_eos.sink_options import SinkOptions, sink_options
from tests.spark_eos.client_world import make_topic, unique
from tests.spark_eos.sink_world import World
from tests.support.apache_kafka import Unavailable, apache_kafka


@pytest.fixture
def client(kafka_address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        yield client


def options_for(client: KafkaClient, **more: str) -> SinkOptions:
    servers = ",".join(client.options.bootstrap_servers)
    return sink_options({"kafka.bootstrap.servers": servers, "decisionTopic": unique("decisions"), **more})


def test_a_good_cluster_gets_a_decision_topic_and_its_own_longest_timeout(client: KafkaClient) -> None:
    wanted = options_for(client, topic=make_topic(client), transactionalIdPrefix=unique("p"))
    settled = check_cluster(client, wanted)
    assert settled.transaction_timeout_ms == 900_000
    assert describe_topic_config(client, wanted.decision_topic)["cleanup.policy"] == "compact"
    assert client.require_topics([wanted.decision_topic])[wanted.decision_topic].partition_count == 8
    probe = f"{wanted.prefix}.preflight"
    [described] = describe_transactions(client, [probe]).values()
    assert (described.state, described.producer_epoch) == ("Empty", 0)
    check_cluster(client, wanted, is_first=False)
    assert describe_transactions(client, [probe])[probe].producer_epoch == 0, "only the first check takes an epoch"


def test_brokers_that_are_too_old_are_named(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def unserved(*_: object, **__: object) -> None:
        raise UnsupportedError("DescribeTransactionsRequest needs a newer broker")

    monkeypatch.setattr(preflight, "describe_transactions", unserved)
    with pytest.raises(UnsupportedError, match=r"no crash can be mended.*Kafka 3\.0 or newer"):
        check_cluster(client, options_for(client))


def test_missing_rights_on_transactional_ids_are_named(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object, name: str, **__: object) -> None:
        raise failure(Api.INIT_PRODUCER_ID, 53, name)

    monkeypatch.setattr(preflight, "init_producer_id", refused)
    with pytest.raises(AuthorizationError, match=r"Grant WRITE and DESCRIBE on transactional ids.*transactionalIdPref"):
        check_cluster(client, options_for(client))


def test_missing_rights_on_groups_are_named(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object, name: str, *__: object, **___: object) -> None:
        raise failure(Api.OFFSET_FETCH, 30, f"group {name!r}")

    monkeypatch.setattr(preflight, "fetch_offsets", refused)
    with pytest.raises(AuthorizationError, match=r"group 'eos-kafka\.preflight'.*Grant READ and DESCRIBE on the group"):
        check_cluster(client, options_for(client))


def test_a_timeout_above_the_brokers_limit_is_refused(client: KafkaClient) -> None:
    with pytest.raises(OptionError, match=r"900001 ms, the brokers allow 900000 ms.*raise transaction\.max\.timeout"):
        check_cluster(client, options_for(client, transactionTimeout="900001"))


def test_a_limit_that_may_not_be_read_is_found_by_trying(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AuthorizationError("no")

    monkeypatch.setattr(preflight, "describe_broker_config", refused)
    assert check_cluster(client, options_for(client)).transaction_timeout_ms == 60_000
    with pytest.raises(BrokerError, match=r"above what the brokers allow.*asked with .* 900001 ms.*transactionTimeout"):
        check_cluster(client, options_for(client, transactionTimeout="900001"))


def test_a_missing_topic_is_named(client: KafkaClient) -> None:
    with pytest.raises(TopicError, match=r"Topic 'not-there' does not exist.*Create it, or correct its name"):
        check_cluster(client, options_for(client, topic="not-there"))


def test_a_decision_topic_that_forgets_is_refused(client: KafkaClient) -> None:
    topic = make_topic(client, cleanup_policy="delete")
    with pytest.raises(TopicError, match=r"cleanup\.policy=delete.*Set it to compact"):
        check_cluster(client, options_for(client, decisionTopic=topic))


def test_a_decision_topic_that_cannot_be_made_says_what_to_make(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object, name: str, **__: object) -> None:
        raise failure(Api.CREATE_TOPICS, 29, f"topic '{name}'")

    monkeypatch.setattr("spark_eos.sink.decision_topic.create_topic", refused)
    with pytest.raises(TopicError, match=r"cannot be created.*cleanup\.policy=compact, 8 partitions and 1 replica"):
        check_cluster(client, options_for(client))


def test_a_decision_topic_that_nothing_can_be_written_to_is_refused(client: KafkaClient) -> None:
    topic = make_topic(client, cleanup_policy="compact", min_insync_replicas="2")
    with pytest.raises(TopicError, match=r"1 replica\(s\) and min\.insync\.replicas=2.*more replicas, or lower"):
        ensure_decision_topic(client, topic, 1)


@pytest.mark.parametrize(("config", "replicas", "text"), [
    ({}, 1, None), ({"cleanup.policy": "compact", "min.insync.replicas": "2"}, 3, None),
    ({"cleanup.policy": None, "min.insync.replicas": None}, 1, None),
    ({"cleanup.policy": "compact,delete"}, 3, "decisions can be deleted"),
    ({"min.insync.replicas": "3"}, 2, "no decision can be written"),
])
def test_settings_under_which_decisions_are_lost_or_refused(
    config: dict[str, str | None], replicas: int, text: str | None
) -> None:
    problem = topic_problem("d", config, replicas)
    assert (problem is None) if text is None else text in str(problem)


@pytest.mark.parametrize(("config", "replicas", "wanted", "texts"), [
    ({}, 3, 3, []), ({"unclean.leader.election.enable": "false"}, 3, 1, []),
    ({}, 1, 3, ["has 1 replica(s), the data has 3"]),
    ({"unclean.leader.election.enable": "true"}, 3, 3, ["decisions can be lost"]),
])
def test_what_is_less_durable_than_the_data_is_said(
    config: dict[str, str | None], replicas: int, wanted: int, texts: list[str]
) -> None:
    doubts = topic_doubts("d", config, replicas, wanted)
    assert len(doubts) == len(texts)
    assert all(text in doubt for text, doubt in zip(texts, doubts, strict=True))


def test_a_new_decision_topic_is_as_replicated_as_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def watched(client: KafkaClient, name: str, **settings: Any) -> bool:
        asked.append(settings["replication_factor"])
        return create_topic(client, name, **settings)

    monkeypatch.setattr(decision_topic, "create_topic", watched)
    with EmbeddedBroker(brokers=3, topics={"data": 1}) as broker:
        with KafkaClient(ClientOptions(tuple(broker.bootstrap_servers.split(",")))) as client:
            check_cluster(client, options_for(client, topic="data"))
            check_cluster(client, options_for(client))
    assert asked == [3, 3]


def test_doubts_are_said_once(client: KafkaClient, caplog: pytest.LogCaptureFixture) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    for is_first in (True, False):
        ensure_decision_topic(client, topic, 3, is_first=is_first)
    assert caplog.text.count("Reassign its partitions") == 1


def test_a_job_whose_name_is_in_use_is_warned(client: KafkaClient, caplog: pytest.LogCaptureFixture) -> None:
    world = World(client.options.bootstrap_servers[0], client)
    world.prepare("run1")
    with caplog.at_level(logging.WARNING, "spark_eos.sink"):
        check_cluster(client, options_for(client, jobId=unique("other"), transactionalIdPrefix="p"))
        assert "are open already" not in caplog.text
        check_cluster(client, options_for(client, jobId=world.query, transactionalIdPrefix="p"))
    assert f"1 transactions of job {world.query} are open already" in caplog.text
    assert "a jobId of its own" in caplog.text


def test_access_lists_are_met_before_any_data_is_sent(broker_kind: str) -> None:
    with _guarded_broker(broker_kind) as address:
        admin = AdminClient({"bootstrap.servers": address})
        for operation, prefix in ((AclOperation.WRITE, "unwritten"), (AclOperation.DESCRIBE, "undescribed")):
            denied = AclBinding(
                ResourceType.TRANSACTIONAL_ID, prefix, ResourcePatternType.PREFIXED, "User:*", "*", operation,
                AclPermissionType.DENY,
            )
            for future in admin.create_acls([denied]).values():
                future.result(60)
        with KafkaClient(ClientOptions((address,))) as client:
            check_cluster(client, options_for(client))
            for prefix in ("unwritten", "undescribed"):
                with pytest.raises(AuthorizationError, match="Grant WRITE and DESCRIBE on transactional ids"):
                    check_cluster(client, options_for(client, transactionalIdPrefix=prefix))


@contextmanager
def _guarded_broker(kind: str) -> Iterator[str]:
    """Run a broker on which ACLs decide, and all is allowed that none forbids."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    if kind == "broker_core":
        with EmbeddedBroker(config=settings) as broker:
            yield broker.bootstrap_servers
        return
    try:
        with apache_kafka(settings) as apache:
            yield apache.bootstrap_servers
    except Unavailable as problem:
        pytest.skip(str(problem))


def test_two_runs_of_one_name_fence_each_other_before_anything_is_seen(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(client.options.bootstrap_servers[0], client)
    first, second = world.committer("run1"), world.committer("run2")
    one, decide = world.prepare("run1"), first.log.decide

    def just_after_another(*arguments: Any) -> DriverIdentity:
        second.log.take_over()
        return decide(*arguments)

    monkeypatch.setattr(first.log, "decide", just_after_another)
    with pytest.raises(EosKafkaError, match=r"a newer driver runs this query.*Run one driver for each checkpoint"):
        first.commit([one], 0)
    assert world.visible() == []
