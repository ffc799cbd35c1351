"""Missing features of a cluster are found before any data is sent, with a remedy in the message."""

import logging
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.types import StructType

from broker_core import Drop, EmbeddedBroker, Error
from broker_core.config import STANDARD_AUTHORIZER
from broker_core.errors import ErrorCode
from broker_core.wire import messages
from spark_eos.client.error_table import Api, failure
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import BrokerAddress
from spark_eos.client.needed_apis import BrokerFacts, ask_brokers
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.client.transactions import init_producer_id
from spark_eos.errors import AuthorizationError, BrokerError, EosKafkaError, TopicError, UnsupportedError
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.driver import decision_topic, preflight
from spark_eos.sink.driver.broker_capabilities import BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, data_durability, ensure_decision_topic
from spark_eos.sink.driver.preflight import check_cluster
from spark_eos.sink.protocol.driver_identity import DriverIdentity
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter
from tests.support.broker_core.served_apis import limit
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.brokers import running_broker
from tests.support.spark_eos.client_world import make_topic, unique
from tests.support.spark_eos.driving import log_of
from tests.support.spark_eos.sink_world import World
from tests.support.spark_eos.source_data import add_partitions
from tests.support.waiting import wait_until

ADD_PARTITIONS = int(messages.AddPartitionsToTxnRequest.API_KEY)
VERIFICATION = "transaction.partition.verification.enable"
ALLOWING_WHAT_NO_ACL_DENIES = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def client(kafka_address: str) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        yield client


def options_for(client: KafkaClient, **more: str) -> SinkOptions:
    servers = ",".join(client.options.bootstrap_servers)
    return sink_options({"kafka.bootstrap.servers": servers, "decisionTopic": unique("decisions"), **more})


def pretend(monkeypatch: pytest.MonkeyPatch, facts: Mapping[int, BrokerFacts]) -> list[list[int]]:
    """Replace the feature responses of the brokers that respond; return the lists of brokers that were queried."""
    asked: list[list[int]] = []

    def answer(_: object, node_ids: Collection[int], *__: object, **___: object) -> dict[int, BrokerFacts]:
        asked.append(sorted(node_ids))
        return {node_id: facts[node_id] for node_id in node_ids if node_id in facts}

    monkeypatch.setattr("spark_eos.sink.driver.broker_capabilities.ask_brokers", answer)
    return asked


def facts(**settings: str) -> BrokerFacts:
    """Return what a new broker with these settings reports; `a_b=c` stands for the setting `a.b=c`."""
    return BrokerFacts(5, {name.replace("_", "."): value for name, value in settings.items()})


def test_decision_topic_is_waited_for_until_all_brokers_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that creates thousands of new partitions denies for seconds that a later topic exists."""
    monkeypatch.setattr("spark_eos.client.kafka_client.MISSING_TOPIC_GRACE_SECONDS", 0.0)
    with (
        EmbeddedBroker(topics={"data": 1}) as broker,
        KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client,
    ):
        wanted = options_for(client, topic="data", decisionTopic="decisions")
        unknown = Error("UNKNOWN_TOPIC_OR_PARTITION")
        with broker.fault(api="Metadata", topic="decisions", nth=2, times=4, action=unknown) as fault:
            check_cluster(client, wanted)
        assert fault.hits == 4
        assert broker.topics["decisions"] == 8


def test_suitable_cluster_gets_a_decision_topic_and_the_maximum_timeout(client: KafkaClient) -> None:
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


def test_missing_rights_on_groups_are_reported(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object, name: str, *__: object, **___: object) -> None:
        raise failure(Api.OFFSET_FETCH, 30, f"group {name!r}")

    monkeypatch.setattr(preflight, "fetch_offsets", refused)
    with pytest.raises(AuthorizationError, match=r"group 'eos-kafka\.preflight'.*Grant READ and DESCRIBE on.*prefixed"):
        check_cluster(client, options_for(client))


def test_unreadable_timeout_maximum_is_found_by_trying(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = failure(Api.DESCRIBE_CONFIGS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "broker '1'")
    pretend(monkeypatch, {1: BrokerFacts(5, {}, refusal)})
    assert check_cluster(client, options_for(client)).transaction_timeout_ms == 60_000
    with pytest.raises(BrokerError, match=r"above what the brokers allow.*asked with .* 900001 ms.*transactionTimeout"):
        check_cluster(client, options_for(client, transactionTimeout="900001"))


def test_decision_topic_with_retention_is_accepted_by_option_with_a_warning(
    client: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(client, cleanup_policy="delete", retention_ms="86400000")
    accepting = options_for(client, decisionTopic=topic, allowDecisionRetention="true")
    for is_first in (True, False):
        check_cluster(client, accepting, is_first=is_first)
    assert caplog.text.count("deletes decisions (retention.ms=86400000, retention.bytes=-1)") == 1
    assert "rarely compacted" not in caplog.text


@pytest.mark.parametrize("min_insync", ["1", "2"])
def test_remedy_for_more_replicas_than_brokers_works(min_insync: str) -> None:
    """The command is followed to its end: the topic can be created and written to."""
    settings = {"default.replication.factor": "3", "min.insync.replicas": min_insync}
    with EmbeddedBroker(config=settings) as kafka:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data"}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("data", 1, 1)])["data"].result(60)
        with pytest.raises(TopicError, match="with 3 replicas on 1 broker.*start them") as caught:
            preflight.preflight(ProcessState(REAL), sink_options(options))
        words = shlex.split(str(caught.value).split("`")[1])
        given = dict(zip(words[4::2], words[5::2], strict=True))
        config = dict(word.split("=") for name, word in pairwise(words) if name == "--config")
        created = NewTopic(
            given["--topic"], int(given["--partitions"]), int(given["--replication-factor"]), config=config
        )
        admin.create_topics([created])[given["--topic"]].result(60)
        preflight.preflight(ProcessState(REAL), sink_options(options))


def test_decision_topic_with_fewer_replicas_than_wanted_in_sync_is_used(
    client: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(client, cleanup_policy="compact", min_insync_replicas="2")
    with caplog.at_level(logging.WARNING):
        ensure_decision_topic(client, topic, Durability(1, 1), BrokerCapabilities())
    assert "has 1 replica and min.insync.replicas=2" in caplog.text


def test_data_durability_comes_from_the_topic_or_the_broker_default(client: KafkaClient) -> None:
    topic = make_topic(client, min_insync_replicas="1")
    assert data_durability(client, topic) == Durability(1, 1)
    assert data_durability(client, None) == Durability(1, 0)
    with EmbeddedBroker(brokers=3) as broker:
        with KafkaClient(ClientOptions((broker.bootstrap_servers.split(",")[0],))) as three:
            topic = make_topic(three, min_insync_replicas="2")
            assert data_durability(three, topic) == Durability(3, 2) == data_durability(three, None)


OWN = {"default_replication_factor": "1", "offsets_topic_replication_factor": "3"}


@pytest.mark.parametrize(
    ("said", "replicas", "min_insync"),
    [
        (facts(**OWN, min_insync_replicas="1"), 3, "2"),
        (facts(**OWN), 3, "2"),
        (facts(**OWN, min_insync_replicas="2"), 3, None),
        (facts(default_replication_factor="2", offsets_topic_replication_factor="1"), 2, None),
        (facts(default_replication_factor="1", offsets_topic_replication_factor="1"), 1, None),
        (facts(), -1, None),
    ],
)
def test_new_decision_topic_is_replicated_like_internal_topics(
    monkeypatch: pytest.MonkeyPatch, said: BrokerFacts, replicas: int, min_insync: str | None
) -> None:
    asked: list[tuple[int, str | None]] = []

    def watched(client: KafkaClient, name: str, **settings: Any) -> bool:
        asked.append((settings["replication_factor"], settings["config"].get("min.insync.replicas")))
        return create_topic(client, name, **settings)

    monkeypatch.setattr(decision_topic, "create_topic", watched)
    pretend(monkeypatch, dict.fromkeys((1, 2, 3), said))
    with EmbeddedBroker(brokers=3, topics={"data": 1}) as broker:
        with KafkaClient(ClientOptions(tuple(broker.bootstrap_servers.split(",")))) as client:
            wanted = options_for(client, topic="data")
            check_cluster(client, wanted)
            kept = describe_topic_config(client, wanted.decision_topic)["min.insync.replicas"]
    assert asked == [(replicas, min_insync)]
    assert kept == (min_insync or "1")


def test_offsets_topic_gives_the_replication_factor_when_settings_are_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def watched(*_: object, replication_factor: int, **__: object) -> None:
        asked.append(replication_factor)

    monkeypatch.setattr(decision_topic, "create_topic", watched)
    pretend(monkeypatch, {})
    with EmbeddedBroker(brokers=2) as broker:
        with KafkaClient(ClientOptions(tuple(broker.bootstrap_servers.split(",")), api_timeout_ms=2_000)) as client:
            fetch_offsets(client, "any", None)
            with pytest.raises(TopicError):
                check_cluster(client, options_for(client))
    assert asked == [2]


def test_warnings_are_logged_once(client: KafkaClient, caplog: pytest.LogCaptureFixture) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    for is_first in (True, False):
        ensure_decision_topic(client, topic, Durability(3, 2), BrokerCapabilities(), is_first=is_first)
    assert caplog.text.count("Reassign its partitions") == 1


def test_job_with_a_name_in_use_logs_a_warning(client: KafkaClient, caplog: pytest.LogCaptureFixture) -> None:
    world = World(client.options.bootstrap_servers[0], client)
    world.prepare("run1")
    with caplog.at_level(logging.WARNING, "spark_eos.sink"):
        check_cluster(client, options_for(client, jobId=unique("other"), transactionalIdPrefix="p"))
        assert "already has" not in caplog.text
        check_cluster(client, options_for(client, jobId=world.query, transactionalIdPrefix="p"))
    assert f"job {world.query} already has 1 open transaction" in caplog.text
    assert "its own jobId" in caplog.text


def test_missing_acls_are_reported_before_data_is_sent(broker_kind: str) -> None:
    with running_broker(broker_kind, ALLOWING_WHAT_NO_ACL_DENIES) as address:
        admin = AdminClient({"bootstrap.servers": address})
        for operation, prefix in ((AclOperation.WRITE, "unwritten"), (AclOperation.DESCRIBE, "undescribed")):
            denied = AclBinding(
                ResourceType.TRANSACTIONAL_ID,
                prefix,
                ResourcePatternType.PREFIXED,
                "User:*",
                "*",
                operation,
                AclPermissionType.DENY,
            )
            for future in admin.create_acls([denied]).values():
                future.result(60)
        with KafkaClient(ClientOptions((address,))) as client:
            check_cluster(client, options_for(client))
            words = r"Grant WRITE and DESCRIBE on all transactional ids.*IdPrefix .*as a prefixed pattern"
            for prefix in ("unwritten", "undescribed"):
                with pytest.raises(AuthorizationError, match=words):
                    check_cluster(client, options_for(client, transactionalIdPrefix=prefix))


def test_two_runs_of_one_name_fence_each_other_before_anything_is_visible(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(client.options.bootstrap_servers[0], client)
    first, second = world.committer("run1"), world.committer("run2")
    one, decide = world.prepare("run1"), first.own.log.decide

    async def just_after_another(*arguments: Any) -> DriverIdentity:
        log_of(second).take_over()
        return await decide(*arguments)

    monkeypatch.setattr(first.own.log, "decide", just_after_another)
    with pytest.raises(
        EosKafkaError, match=r"A newer driver is running query.*Run one driver for each checkpoint.*force-terminate"
    ):
        first.commit([one], 0)
    assert world.visible() == []


def test_broker_versions_and_settings_are_reported(client: KafkaClient) -> None:
    started = time.monotonic()
    found = ask_brokers(client, [client.brokers()[0].node_id, 4711], ["transaction.max.timeout.ms"], timeout_ms=10_000)
    assert time.monotonic() - started < 10, "the check must not wait for a missing broker"
    [(_, said)] = found.items()
    assert said.settings == {"transaction.max.timeout.ms": "900000"} and said.trouble is None
    assert said.add_partitions_version >= 4


def test_lowest_timeout_maximum_of_all_brokers_applies(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {1: facts(transaction_max_timeout_ms="900000"), 2: facts(transaction_max_timeout_ms="70000")}
    capabilities = BrokerCapabilities(facts=limits)
    pretend(monkeypatch, limits)
    settled = check_cluster(client, options_for(client), capabilities)
    assert (settled.transaction_timeout_ms, settled.timeout_limit_ms) == (70_000, 70_000)


def test_every_broker_is_asked_at_every_check_and_a_silent_one_counts_as_before(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {1: facts(), 2: facts()}
    asked = pretend(monkeypatch, answers)
    monkeypatch.setattr(client, "brokers", lambda: [BrokerAddress(node_id, "h", 1) for node_id in (1, 2, 3)])
    capabilities = BrokerCapabilities()
    for answers[1] in (facts(), BrokerFacts(OLD, {}), facts()):
        capabilities.complete(client)
        assert list(capabilities.unverifying(0)) == [1] * (answers[1] != facts())
        answers.pop(2, None)
    assert asked == [[1, 2, 3]] * 3
    assert capabilities.troubles == ["broker 3 gives no usable response"]


# The version that Apache Kafka 3.5 serves.
OLD = 3


def test_old_broker_in_a_new_cluster_is_refused_or_accepted_by_option(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = {1: facts(), 2: BrokerFacts(OLD, {})}
    wanted = options_for(client)
    with pytest.raises(
        UnsupportedError, match=r"broker 2 supports.*Kafka 3\.6 or newer.*allowHangingTransactions=true"
    ):
        check_cluster(client, wanted, BrokerCapabilities(facts=brokers))
    assert wanted.decision_topic not in client.metadata(None), "a refused query creates nothing"
    accepting = options_for(client, allowHangingTransactions="true")
    for is_first in (True, False):
        assert check_cluster(
            client, accepting, BrokerCapabilities(facts=brokers), is_first=is_first
        ).allow_hanging_transactions
    assert caplog.text.count("transactions may hang") == 1
    # The option has no effect on brokers that verify; it has one where that cannot be known.
    assert not check_cluster(client, accepting).allow_hanging_transactions
    pretend(monkeypatch, {})
    assert check_cluster(client, accepting).allow_hanging_transactions
    assert not check_cluster(client, wanted).allow_hanging_transactions


def test_old_broker_is_recognized_by_its_api_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, ADD_PARTITIONS, OLD)
    with EmbeddedBroker(transaction_version=0) as broker:
        old = KafkaClient(ClientOptions((broker.bootstrap_servers,)))
        with old, pytest.raises(UnsupportedError, match="broker 1 supports AddPartitionsToTxn only up to version 3"):
            check_cluster(old, options_for(old))


@pytest.mark.parametrize("level", [1, 2])
def test_disabled_verification_is_refused_below_transactions_v2(level: int) -> None:
    with EmbeddedBroker(transaction_version=level, config={VERIFICATION: "false"}) as broker:
        with KafkaClient(ClientOptions((broker.bootstrap_servers,))) as client:
            if level == 2:
                check_cluster(client, options_for(client))
                return
            with pytest.raises(UnsupportedError, match=rf"broker 1 has {VERIFICATION}=false.*{VERIFICATION}=true"):
                check_cluster(client, options_for(client))


def requests_since(kafka: EmbeddedBroker, before: int) -> Counter[str]:
    return Counter(each.api for each in kafka.requests()[before:])


def until_next_look(clock: AheadClock, process: ProcessState, wanted: SinkOptions) -> None:
    """Advance the clock by ten minutes, during which the query makes writers."""
    half = preflight._LOOKS_EVERY_SECONDS / 2
    clock.ahead_seconds += half
    preflight.preflight(process, wanted)
    clock.ahead_seconds += half


def test_running_query_is_checked_once_over_persistent_connections() -> None:
    clock = AheadClock()
    process = ProcessState(runtime_by(clock))
    with EmbeddedBroker(brokers=3, topics={"data": 1}) as kafka:
        wanted = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data"})
        settled = preflight.preflight(process, wanted)
        first = requests_since(kafka, 0)
        # The id of the check.
        assert first["CreateTopics"] == 1 and first["InitProducerId"] == 1
        # One for the bootstrap connection, one for each broker, and one for each of their connections.
        assert first["ApiVersions"] == 1 + 3 + 3
        before = len(kafka.requests())
        for _ in range(5):
            assert preflight.preflight(process, wanted) == settled
        # How many partitions the output topic has, for each micro-batch.
        assert requests_since(kafka, before) == {"Metadata": 5}
        preflight.preflight(process, wanted, plans=False)
        assert requests_since(kafka, before) == {"Metadata": 5}, "a commit does not count them again"
        # Other options for the same cluster: another query uses the same connections.
        other = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data", "jobId": "other"})
        preflight.preflight(process, other)
        asked = requests_since(kafka, before)
        # Only a job may have been started by another process under the same name.
        assert asked["ApiVersions"] == 3 and asked["ListTransactions"] == 3 and first["ListTransactions"] == 0
        until_next_look(clock, process, wanted)
        before = len(kafka.requests())
        assert preflight.preflight(process, wanted) == settled
        # The list of brokers; the decision topic and its settings; the partitions of the output topic.
        asked = requests_since(kafka, before)
        # Versions, levels and settings of each broker, which may have been restarted.
        assert asked == {"Metadata": 3, "DescribeConfigs": 1 + 3, "ApiVersions": 3}


def test_lowered_maximum_is_taken_by_the_next_start_of_a_query_without_a_timeout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The node comes back with a lower maximum while a query runs: the next new transactional id is refused."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    (tmp_path / "spark").mkdir()
    process, schema = ProcessState(REAL), StructType().add("value", "string")
    data = str(tmp_path / "data")
    with EmbeddedBroker(data_dir=data, topics={"data": 1}) as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data"}
        wanted = sink_options(given)
        first = preflight.preflight(process, wanted)
    with EmbeddedBroker(data_dir=data, port=port, config={"transaction.max.timeout.ms": "60000"}):
        assert preflight.preflight(process, wanted) == first
        with (
            KafkaClient(wanted.client) as client,
            pytest.raises(BrokerError, match="A query without the option takes the brokers' limit when it is started"),
        ):
            init_producer_id(client, unique("id"), transaction_timeout_ms=first.transaction_timeout_ms or 0)
        StreamWriter(given, schema, True).abort([None], 0)
        assert preflight.preflight(process, wanted).transaction_timeout_ms == 60_000


def test_query_that_failed_is_checked_as_at_its_first_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Brokers came back with a lower transaction.max.timeout.ms; the driver asked for the old one at each restart."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    schema = StructType().add("value", "string")
    with EmbeddedBroker(topics={"data": 1, "more": 1}) as kafka:

        def asked(topic: str) -> int:
            before = len(kafka.requests())
            options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
            writers[topic] = StreamWriter(options, schema, True)
            return requests_since(kafka, before)["InitProducerId"]

        writers: dict[str, StreamWriter] = {}
        assert [asked("data"), asked("more"), asked("data"), asked("more")] == [1, 1, 0, 0]
        writers["data"].abort([None], 0)
        # Another query makes the next writer.
        assert [asked("more"), asked("data"), asked("data")] == [0, 1, 0]


def test_partitions_are_counted_for_each_micro_batch_and_the_last_count_serves_in_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query that is stopped and started again uses partitions that were added in between."""
    monkeypatch.setattr(preflight, "_LOOK_PATIENCE_MS", 200)
    process = ProcessState(REAL)
    with EmbeddedBroker(topics={"data": 2}) as kafka:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        wanted = sink_options({**options, "topic": "data"})
        assert preflight.preflight(process, wanted).partition_count == 2
        add_partitions(kafka.bootstrap_servers, "data", 7)
        # On a busy machine, a look may end before its answer comes; the next micro-batch looks again.
        wait_until(lambda: preflight.preflight(process, wanted).partition_count == 7, "the partitions are counted")
        with kafka.fault(api="Metadata", action=Drop()):
            assert preflight.preflight(process, wanted).partition_count == 7
        # Rows name the topics.
        assert preflight.preflight(process, sink_options(options)).partition_count is None
        kafka.delete_topic("data")
        with pytest.raises(TopicError, match="Topic 'data' does not exist"):
            wait_until(lambda: preflight.preflight(process, wanted) is None, "the topic is missed")


def test_first_check_takes_a_fixed_number_of_round_trips() -> None:
    """The requests come one after another; each connection begins with ApiVersions."""
    with EmbeddedBroker(topics={"data": 1}) as kafka:
        wanted = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data"})
        # The first check creates and marks the decision topic.
        for expected in (15, 11):
            before = len(kafka.requests())
            preflight.preflight(ProcessState(REAL), wanted)
            asked = requests_since(kafka, before)
            del asked["ApiVersions"]
            assert asked.total() == expected, asked
            assert not {"ListTransactions", "EndTxn"} & asked.keys()


def test_outage_during_a_later_check_does_not_stop_the_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preflight, "_LOOK_PATIENCE_MS", 200)
    clock = AheadClock()
    process = ProcessState(runtime_by(clock))
    with EmbeddedBroker() as kafka:
        wanted = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers})
        settled = preflight.preflight(process, wanted)
    until_next_look(clock, process, wanted)
    with caplog.at_level(logging.INFO, "spark_eos.sink"):
        for _ in range(3):
            assert preflight.preflight(process, wanted) == settled
    assert caplog.text.count("the cluster checks are skipped for now") == 1, (
        "only the first micro-batch waits for the brokers"
    )


def test_later_check_finds_brokers_that_were_missing_or_are_others_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = AheadClock()
    process = ProcessState(runtime_by(clock))
    brokers = {1: facts()}
    pretend(monkeypatch, brokers)
    with EmbeddedBroker(brokers=2) as kafka:
        wanted = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers})
        preflight.preflight(process, wanted)
        until_next_look(clock, process, wanted)
        preflight.preflight(process, wanted)
        until_next_look(clock, process, wanted)
        for number in (2, 1):
            brokers[number] = BrokerFacts(OLD, {})
            with pytest.raises(
                UnsupportedError, match=f"broker {number} supports AddPartitionsToTxn only up to version 3"
            ):
                preflight.preflight(process, wanted)
            brokers[number] = facts()
            preflight.preflight(process, wanted)
            until_next_look(clock, process, wanted)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, wanted.decision_topic, incremental_configs=[policy])
        process = ProcessState(runtime_by(clock))
        preflight.preflight(process, wanted)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)
        until_next_look(clock, process, wanted)
        with pytest.raises(TopicError, match="cleanup.policy=delete"):
            preflight.preflight(process, wanted)


def test_write_after_a_failed_commit_checks_the_cluster_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is valid for ten minutes, and a deleted decision topic once stayed missing for that long."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    schema = StructType().add("value", "string")
    with EmbeddedBroker(topics={"data": 1}) as kafka:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "data", "jobId": unique("job")}

        writer = BatchWriter(options, schema, False)
        kafka.delete_topic("eos-kafka-decisions")
        with pytest.raises(TopicError, match="'eos-kafka-decisions' does not exist"):
            writer.commit([])
        # Spark's answer to an error of the commit.
        writer.abort([])
        assert "eos-kafka-decisions" not in kafka.topics
        again = BatchWriter(options, schema, False)
        assert "eos-kafka-decisions" in kafka.topics
        again.commit([])
        before = len(kafka.requests())
        BatchWriter(options, schema, False)
        assert requests_since(kafka, before) == {"Metadata": 1}, "only the partitions are counted"
