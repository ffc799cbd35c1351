"""Settings that change while a broker runs: of brokers, groups, client metrics and loggers (KIP-226, 412, 1142)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError
from kafka.protocol.admin import AlterConfigsRequest, ListConfigResourcesRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from broker_core.errors import ErrorCode
from tests.support.both_brokers import Kafka
from tests.support.clients import DEADLINE_S, make_producer, make_topic, unique
from tests.support.messages import consumer_join
from tests.support.raw_client import RawClient
from tests.support.restartable import Restartable
from tests.support.setting_changes import Change, change, describe
from tests.support.waiting import wait_until

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC, DYNAMIC_DEFAULT, DEFAULT, OF_LOGGER, OF_METRICS, OF_GROUP = 2, 3, 5, 6, 7, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
TOO_LITTLE = "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."


def replace(client: RawClient, kind: int, name: str, settings: Mapping[str, str | None], version: int = 2) -> int:
    """Send AlterConfigs for one resource; return the code."""
    form = AlterConfigsRequest.AlterConfigsResource
    configs = [form.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    request = AlterConfigsRequest(
        resources=[form(resource_type=kind, resource_name=name, configs=configs)], validate_only=False
    )
    (answer,) = client.send(request, version).responses
    code: int = answer.error_code
    return code


def sources(client: RawClient, kind: int, name: str, key: str) -> list[tuple[str, str | None, int]]:
    """Return the synonyms of one setting."""
    return [
        (each.name, each.value, each.source)
        for entry in describe(client, kind, name, key).configs
        for each in entry.synonyms
    ]


def resources(client: RawClient, *kinds: int, version: int = 1) -> tuple[int, set[tuple[int, str]]]:
    answer = client.send(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}


@contextmanager
def changed(client: RawClient, kind: int, name: str, **settings: str) -> Iterator[None]:
    """Change settings for the length of a block; `a_b=c` stands for `a.b=c`."""
    values = {key.replace("_", "."): value for key, value in settings.items()}
    assert change(client, kind, name, *((key, SET, value) for key, value in values.items())) == (0, None)
    try:
        yield
    finally:
        change(client, kind, name, *((key, DELETE, None) for key in values))


def test_the_setting_of_one_broker_is_in_force_before_that_of_all_brokers(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    with (
        changed(client, BROKER, "", log_retention_ms="7200000"),
        changed(client, BROKER, "1", log_retention_ms="3600000"),
    ):
        hours = ("log.retention.hours", "168", DEFAULT)
        own, of_all = ("log.retention.ms", "3600000", DYNAMIC), ("log.retention.ms", "7200000", DYNAMIC_DEFAULT)
        wait_until(lambda: sources(client, BROKER, "1", "log.retention.ms") == [own, of_all, hours], "both are seen")
        (entry,) = describe(client, BROKER, "", "log.retention.ms").configs
        assert (entry.value, entry.read_only, entry.config_source) == ("7200000", False, DYNAMIC_DEFAULT)
        (entry,) = describe(client, TOPIC, topic, "retention.ms").configs
        assert (entry.value, entry.config_source) == ("3600000", DYNAMIC)
    wait_until(lambda: sources(client, BROKER, "1", "log.retention.ms") == [], "the settings are gone")


def test_a_new_cluster_has_one_setting_for_all_brokers(client: RawClient):
    (entry,) = describe(client, BROKER, "", "min.insync.replicas").configs
    assert (entry.value, entry.config_source) == ("1", DYNAMIC_DEFAULT)
    assert change(client, BROKER, "", ("min.insync.replicas", DELETE, None)) == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert change(client, BROKER, "1", ("min.insync.replicas", SET, "1"))[0] == ErrorCode.INVALID_CONFIG


def test_a_smaller_limit_of_all_brokers_applies_to_the_next_record(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    producer = make_producer(kafka)

    def is_refused() -> bool:
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    assert not is_refused()
    with changed(client, BROKER, "", message_max_bytes="2000"):
        wait_until(is_refused, "the record is too large")
    wait_until(lambda: not is_refused(), "the record is small enough again")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("1", [("num.partitions", SET, "3")], "Cannot update these configs dynamically: [num.partitions]"),
        ("", [("num.partitions", SET, "3")], "Cannot update these configs dynamically: [num.partitions]"),
        (
            "1",
            [("num.partitions", SET, "3"), ("node.id", SET, "3")],
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        ("1", [("log.retention.hours", SET, "5")], "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            "",
            [("group.consumer.session.timeout.ms", SET, "50000")],
            "Cannot update these configs dynamically: [group.consumer.session.timeout.ms]",
        ),
        (
            "",
            [("listener.name.plaintext.ssl.keystore.location", SET, "/x")],
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.keystore.location]",
        ),
        (
            "1",
            [("ssl.keystore.location", SET, "/x")],
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        ("", [("max.connections.per.ip.overrides", SET, "nonsense")], None),
        ("2", [("log.retention.ms", SET, "1")], "Unexpected broker id, expected 1, but received 2"),
        ("x", [("log.retention.ms", SET, "1")], "Node id must be an integer, but it is: x"),
        (" 1", [("log.retention.ms", SET, "1")], "Node id must be an integer, but it is:  1"),
        ("2147483648", [("log.retention.ms", SET, "1")], "Node id must be an integer, but it is: 2147483648"),
        ("1_0", [("log.retention.ms", SET, "1")], "Node id must be an integer, but it is: 1_0"),
        ("1", [("log.cleaner.dedupe.buffer.size", SET, "1048576")], TOO_LITTLE),
        ("", [("log.cleaner.dedupe.buffer.size", SET, "-1")], TOO_LITTLE),
        (
            "1",
            [("log.cleaner.dedupe.buffer.size", SET, "2097153"), ("log.cleaner.threads", SET, "2")],
            TOO_LITTLE,
        ),
        ("", [("log.cleaner.threads", SET, "2147483647")], TOO_LITTLE),
        ("1", [("log.retention.ms", 9, "1")], "Unknown operations type 9"),
        ("1", [("log.retention.ms", SET, None)], "Null value not supported for : log.retention.ms"),
        (
            "1",
            [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "1")],
            "Error due to duplicate config keys",
        ),
    ],
)
def test_a_setting_of_a_broker_that_is_refused(
    client: RawClient, name: str, changes: list[Change], message: str | None
):
    code, said = change(client, BROKER, name, *changes)
    assert (code, said) == (ErrorCode.INVALID_REQUEST, said if message is None else message)


def test_commas_alone_add_nothing_to_a_list(client: RawClient):
    for value in (",", ",,"):
        assert change(client, BROKER, "1", ("log.cleanup.policy", APPEND, value), validate_only=True) == (0, None)


def test_lists_of_brokers_are_appended_to_the_default(client: RawClient):
    key = "log.cleanup.policy"
    try:
        assert change(client, BROKER, "1", (key, APPEND, "compact")) == (0, None)
        own = (key, "delete,compact", DYNAMIC)
        wait_until(lambda: sources(client, BROKER, "1", key) == [own, (key, "delete", DEFAULT)], "compact is appended")
        assert change(client, BROKER, "1", (key, SUBTRACT, "delete")) == (0, None)
        wait_until(lambda: sources(client, BROKER, "1", key)[0] == (key, "compact", DYNAMIC), "delete is subtracted")
    finally:
        change(client, BROKER, "1", (key, DELETE, None))
    for unlisted, message in [
        ("log.retention.ms", "Config value append is not allowed for config key: log.retention.ms"),
        ("no.such.key", "Unknown config name: no.such.key"),
        ("leader.replication.throttled.rate", "Unknown config name: leader.replication.throttled.rate"),
    ]:
        assert change(client, BROKER, "1", (unlisted, APPEND, "1")) == (ErrorCode.INVALID_CONFIG, message)


def test_a_key_that_kafka_does_not_have_is_kept_and_hidden(client: RawClient):
    with changed(client, BROKER, "1", no_such_key="secret"):
        wait_until(lambda: describe(client, BROKER, "1", "no.such.key").configs, "the key is described")
        (entry,) = describe(client, BROKER, "1", "no.such.key").configs
        assert (entry.value, entry.read_only, entry.config_source, entry.is_sensitive) == (None, True, DYNAMIC, True)


def test_validation_changes_nothing(client: RawClient):
    wanted = ("log.retention.ms", SET, "1")
    assert change(client, BROKER, "1", wanted, validate_only=True) == (0, None)
    assert sources(client, BROKER, "1", "log.retention.ms") == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_request_replaces_all_settings(client: RawClient, version: int):
    assert replace(client, GROUP, "g", {"consumer.session.timeout.ms": "47000"}, version) == 0
    assert replace(client, GROUP, "g", {"consumer.assignment.interval.ms": "6000"}, version) == 0

    def own() -> dict[str, str]:
        return {
            entry.name: entry.value for entry in describe(client, GROUP, "g").configs if entry.config_source == OF_GROUP
        }

    wait_until(lambda: own() == {"consumer.assignment.interval.ms": "6000"}, "the first setting is gone")
    assert replace(client, GROUP, "g", {}, version) == 0
    assert replace(client, LOGGER, "1", {"root": "INFO"}, version) == ErrorCode.INVALID_REQUEST
    assert replace(client, GROUP, "g", {"consumer.session.timeout.ms": None}, version) == ErrorCode.INVALID_REQUEST
    assert replace(client, TOPIC, "", {"retention.ms": "5"}, version) == ErrorCode.INVALID_REQUEST
    assert replace(client, BROKER, "1", {"num.partitions": "5"}, version) == ErrorCode.INVALID_REQUEST


def heartbeat_interval_ms(client: RawClient, group: str) -> int:
    """Join a group with a new member; return the interval that the coordinator answers."""
    client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    answer = client.send(consumer_join(group, member_id=unique("member")), 1)
    assert answer.error_code == ErrorCode.NONE
    interval_ms: int = answer.heartbeat_interval_ms
    return interval_ms


def test_the_settings_of_a_group_apply_to_its_members(client: RawClient):
    group = unique("group")
    with changed(client, GROUP, group, consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="46000"):
        own = ("consumer.heartbeat.interval.ms", "7000", OF_GROUP)
        wait_until(lambda: sources(client, GROUP, group, own[0])[0] == own, "the setting is seen")
        assert [name for name, _, _ in sources(client, GROUP, group, own[0])[1:]] == [
            "group.consumer.heartbeat.interval.ms"
        ] * 2
        assert heartbeat_interval_ms(client, group) == 7000
        assert (GROUP, group) in resources(client, GROUP)[1]
    assert heartbeat_interval_ms(client, unique("group")) == 200


@pytest.mark.parametrize(
    ("kind", "changes", "code", "message"),
    [
        (GROUP, [("x", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown group config name: x"),
        (
            GROUP,
            [("consumer.heartbeat.interval.ms", SET, "100000")],
            ErrorCode.INVALID_CONFIG,
            None,
        ),
        (
            GROUP,
            [("consumer.heartbeat.interval.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration consumer.heartbeat.interval.ms: Not a number of type INT",
        ),
        (
            GROUP,
            [("consumer.heartbeat.interval.ms", APPEND, "6000")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key consumer.heartbeat.interval.ms because its type is not LIST.",
        ),
        (CLIENT_METRICS, [("x", SET, "1")], ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: x"),
        (
            CLIENT_METRICS,
            [("interval.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            CLIENT_METRICS,
            [("metrics", APPEND, "a.b")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key metrics because its type is not LIST.",
        ),
        (99, [("x", SET, "1")], ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_a_setting_of_a_group_or_of_client_metrics_that_is_refused(
    client: RawClient, kind: int, changes: list[Change], code: int, message: str | None
):
    found, said = change(client, kind, "refused", *changes)
    assert (found, said) == (code, said if message is None else message)
    assert (kind, "refused") not in resources(client)[1]


def test_the_settings_of_client_metrics_are_described_and_listed(client: RawClient):
    name = unique("metrics")
    defaults = {each.name: (each.value, each.config_source) for each in describe(client, CLIENT_METRICS, name).configs}
    assert defaults == {"interval.ms": ("300000", DEFAULT), "metrics": ("", DEFAULT), "match": ("", DEFAULT)}
    with changed(client, CLIENT_METRICS, name, metrics="a.b", match="client_id=a,client_software_name=x.*"):
        wait_until(
            lambda: describe(client, CLIENT_METRICS, name, "metrics").configs[0].value == "a.b", "the change is seen"
        )
        entries = {each.name: each for each in describe(client, CLIENT_METRICS, name).configs}
        assert {key: (each.value, each.config_source) for key, each in entries.items()} == {
            "interval.ms": ("300000", DEFAULT),
            "metrics": ("a.b", OF_METRICS),
            "match": ("client_id=a,client_software_name=x.*", OF_METRICS),
        }
        assert (CLIENT_METRICS, name) in resources(client, version=0)[1]
    wait_until(lambda: (CLIENT_METRICS, name) not in resources(client)[1], "the subscription is gone")


def test_resources_are_listed_by_type(kafka: Kafka, client: RawClient):
    topic = make_topic(kafka)
    assert {(TOPIC, topic), (BROKER, "1"), (LOGGER, "1")} <= resources(client)[1]
    assert resources(client, BROKER) == (0, {(BROKER, "1")})
    assert {kind for kind, _ in resources(client, TOPIC, LOGGER)[1]} == {TOPIC, LOGGER}
    for unknown in (0, 1, 99):
        assert resources(client, CLIENT_METRICS, unknown) == (ErrorCode.UNSUPPORTED_VERSION, set())


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (BROKER, "2", "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (LOGGER, "", "Broker id must not be empty"),
        (LOGGER, "2", "Unexpected broker id, expected 1 but received 2"),
        (GROUP, "", "Group name must not be empty"),
        (CLIENT_METRICS, "", "Client metrics subscription name must not be empty"),
        (99, "1", None),
    ],
)
def test_a_resource_that_cannot_be_described(client: RawClient, kind: int, name: str, message: str | None):
    found = describe(client, kind, name)
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert message is None or found.error_message == message


def test_levels_of_loggers(client: RawClient):
    loggers = {each.name: each for each in describe(client, LOGGER, "1").configs}
    assert {each.config_source for each in loggers.values()} == {OF_LOGGER}
    name = next(each for each in sorted(loggers) if each != "root")
    root = loggers["root"].value

    def level(key: str) -> str | None:
        (entry,) = describe(client, LOGGER, "1", key).configs
        value: str | None = entry.value
        return value

    assert change(client, LOGGER, "1", (name, SET, "ERROR")) == (0, None)
    assert (level(name), level("root")) == ("ERROR", root)
    assert change(client, LOGGER, "1", (name, DELETE, None)) == (0, None)
    assert level(name) == root
    for changes, code in [
        ((name, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((name, SET, "debug"), ErrorCode.INVALID_CONFIG),
        (("no.such.Logger", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        ((name, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ]:
        assert change(client, LOGGER, "1", changes)[0] == code
    assert change(client, LOGGER, "2", (name, SET, "INFO"))[0] == ErrorCode.INVALID_REQUEST


def test_settings_survive_a_restart(durable_kafka: Restartable):
    group, metrics = unique("group"), unique("metrics")
    with RawClient(durable_kafka.bootstrap_servers) as client:
        assert change(client, BROKER, "", ("log.retention.ms", SET, "7200000")) == (0, None)
        assert change(client, BROKER, "1", ("max.message.count", SET, "x")) == (0, None)
        assert change(client, GROUP, group, ("consumer.session.timeout.ms", SET, "46000")) == (0, None)
        assert change(client, CLIENT_METRICS, metrics, ("interval.ms", SET, "1000")) == (0, None)
    durable_kafka.restart()
    with RawClient(durable_kafka.bootstrap_servers) as client:
        assert sources(client, BROKER, "1", "log.retention.ms")[0] == ("log.retention.ms", "7200000", DYNAMIC_DEFAULT)
        assert describe(client, BROKER, "1", "max.message.count").configs
        assert sources(client, GROUP, group, "consumer.session.timeout.ms")[0][1:] == ("46000", OF_GROUP)
        assert {(GROUP, group), (CLIENT_METRICS, metrics)} <= resources(client)[1]
        change(client, BROKER, "", ("log.retention.ms", DELETE, None))
        change(client, BROKER, "1", ("max.message.count", DELETE, None))
