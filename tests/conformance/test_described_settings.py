"""Every setting as DescribeConfigs shows it, field by field, on Apache Kafka and here, from the same file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from broker_core import EmbeddedBroker
from broker_core.config import known_settings
from tests.support.apache_kafka import apache_kafka
from tests.support.both_brokers import Kafka
from tests.support.clients import make_topic
from tests.support.listener_brokers import apache_listeners, check_ipv6, listening
from tests.support.raw_client import RawClient
from tests.support.setting_changes import change, describe
from tests.support.waiting import wait_until

TOPIC, BROKER, LOGGERS, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_DEFAULT = 3
# The source of a setting of the resource itself.
SOURCES: Final = {TOPIC: 1, BROKER: 2, CLIENT_METRICS: 7, GROUP: 8}
# The topic's name is drawn.
RESOURCES: Final = {
    "topic": (TOPIC, None),
    "broker": (BROKER, "1"),
    "all brokers": (BROKER, ""),
    "client metrics": (CLIENT_METRICS, "m"),
    "group": (GROUP, "g"),
}
# Lines of each form that a file may have: other units and forms of numbers, listeners, unknown and internal names.
SETTINGS: Final = {
    "allow.everyone.if.no.acl.found": "true",
    "auto.leader.rebalance.enable": "false",
    "broker.rack": "",
    "compression.type": "gzip",
    "config.providers": "",
    "delegation.token.secret.key": "secret",
    "group.consumer.assignors": "range",
    "group.consumer.migration.policy": "UPGRADE",
    "group.streams.session.timeout.ms": "50000",
    "listener.name.plaintext.max.connections": "1000",
    "listener.name.plaintext.num.partitions": "4",
    "listener.name.plaintext.ssl.client.auth": "none",
    "listener.name.second.plain.connections.max.reauth.ms": "60000",
    "listener.name.second.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="secret";'
    ),
    "log.cleaner.min.cleanable.ratio": "0x1p-2",
    "log.flush.interval.messages": "5",
    "log.flush.scheduler.interval.ms": "777",
    "log.message.timestamp.type": "CreateTime",
    "log.preallocate": " TRUE",
    "log.retention.hours": " +24",
    "log.roll.jitter.hours": "2",
    "no.such.key": "1",
    "num.io.threads": "16",
    "num.partitions": " +3 ",
    "producer.id.expiration.check.interval.ms": "5000",
    "replica.lag.time.max.ms": "40000",
    "retention.ms": "5",
    "ssl.allow.dn.changes": "true",
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384 , TLS_AES_128_GCM_SHA256 ",
    "ssl.endpoint.identification.algorithm": "",
    "super.users": "User:a;User:ANONYMOUS",
    "transaction.state.log.min.isr": "1",
    "unstable.api.versions.enable": "false",
}
CHANGES: Final = (
    ("broker", {"log.flush.interval.ms": "88", "log.retention.ms": "77000", "log.roll.jitter.ms": "99"}),
    ("broker", {"listener.name.plaintext.max.connections": "44", "super.users": "User:b", "retention.ms": "7"}),
    ("broker", {"num.io.threads": "32", "sasl.login.refresh.window.factor": "0.9", "unknown": "x"}),
    ("all brokers", {"log.retention.ms": "76000", "log.cleaner.threads": "2", "also.unknown": "x", "flush.ms": "3"}),
    ("topic", {"flush.ms": "44", "retention.ms": "55", "preallocate": "false"}),
    ("group", {"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}),
    ("client metrics", {"interval.ms": "1000", "match": "client_id=a , client_software_name=b"}),
)
FIELDS: Final = ("value", "config_type", "read_only", "config_source", "is_default", "is_sensitive", "synonyms")
STAGES = ("started", "changed")
ONLY_APACHE, ONLY_HERE = "only on Apache Kafka", "only here"
# The fields of settings that differ, and the reason.
_OWN: Final = ({ONLY_HERE}, "Kafka does not have it")
_HIDDEN: Final = ({"value"}, "while a shorter unit is changed, the default shows there, not the value in the file")
_REPLICAS: Final = ({"synonyms"}, "the default is the number of brokers, which internal topics have as replicas")
_FOR_TESTS: Final = ({"synonyms"}, "the default serves tests")
_UNSET_FOR_TESTS: Final = ({"value", "synonyms"}, _FOR_TESTS[1])
KNOWN: Final[Mapping[tuple[str, str], tuple[set[str], str]]] = {
    ("broker", "cluster.id"): _OWN,
    ("broker", "group.version"): _OWN,
    ("broker", "kafka.version"): _OWN,
    ("broker", "log.flush.before.ack"): _OWN,
    ("broker", "share.version"): _OWN,
    ("broker", "transaction.version"): _OWN,
    ("broker", "no.such.key"): ({ONLY_APACHE}, "it has neither a value nor a type; the log names it at the start"),
    ("broker", "log.flush.scheduler.interval.ms"): _HIDDEN,
    ("broker", "log.retention.hours"): _HIDDEN,
    ("broker", "log.roll.jitter.hours"): _HIDDEN,
    ("broker", "group.consumer.assignment.interval.ms"): _FOR_TESTS,
    ("broker", "group.initial.rebalance.delay.ms"): _FOR_TESTS,
    ("broker", "group.share.assignment.interval.ms"): _UNSET_FOR_TESTS,
    ("broker", "log.initial.task.delay.ms"): _FOR_TESTS,
    ("group", "consumer.assignment.interval.ms"): _FOR_TESTS,
    ("group", "share.assignment.interval.ms"): _UNSET_FOR_TESTS,
    ("broker", "offsets.topic.replication.factor"): _REPLICAS,
    ("broker", "share.coordinator.state.topic.replication.factor"): _REPLICAS,
    ("broker", "transaction.state.log.replication.factor"): _REPLICAS,
    ("broker", "sasl.enabled.mechanisms"): ({"synonyms"}, "GSSAPI is not served"),
}
Entries = dict[tuple[str, str, str], dict[str, Any]]


def documented(client: RawClient, kind: int, name: str) -> list[Any]:
    answer = describe(client, kind, name, documentation=True)
    assert answer.error_code == 0, answer
    return list(answer.configs)


def described(client: RawClient, topic: str, stage: str) -> Entries:
    """Return all fields of each setting, by stage, resource and name."""
    return {
        (stage, resource, entry.name): {
            **{field: getattr(entry, field) for field in FIELDS},
            "synonyms": [(each.name, each.value, each.source) for each in entry.synonyms],
        }
        for resource, (kind, name) in RESOURCES.items()
        for entry in documented(client, kind, topic if name is None else name)
    }


def alter(client: RawClient, topic: str, resource: str, settings: Mapping[str, str]) -> None:
    """Change settings, and wait until the broker has them."""
    kind, name = RESOURCES[resource]
    name = topic if name is None else name
    assert change(client, kind, name, *((key, 0, value) for key, value in settings.items())) == (0, None), settings
    source = DYNAMIC_DEFAULT if kind == BROKER and not name else SOURCES[kind]

    def is_applied() -> bool:
        return settings.keys() <= {each.name for each in documented(client, kind, name) if each.config_source == source}

    wait_until(is_applied, f"the broker has {settings}")


def observed(address: str) -> tuple[Entries, set[tuple[str, ...]]]:
    """Return what a broker describes after its start and after changes, and the forms of its loggers."""
    with RawClient(address) as client:
        topic = make_topic(Kafka(address))
        started = described(client, topic, "started")
        for change in CHANGES:
            alter(client, topic, *change)
        loggers = {
            tuple(str(getattr(entry, field)) for field in (*FIELDS[1:], "documentation"))
            for entry in documented(client, LOGGERS, "1")
        }
        return started | described(client, topic, "changed"), loggers


def differences(theirs: Entries, ours: Entries) -> dict[tuple[str, str, str], set[str]]:
    """Return the fields that differ, by stage, resource and name."""
    found = {place: {ONLY_APACHE if place in theirs else ONLY_HERE} for place in theirs.keys() ^ ours.keys()}
    for place in theirs.keys() & ours.keys():
        fields = {field for field in FIELDS if theirs[place][field] != ours[place][field]}
        if fields:
            found[place] = fields
    return found


@pytest.mark.usefixtures("apache_asked_for")
def test_every_field_of_every_setting(tmp_path: Path):
    """Start both brokers with the same file, one after the other, so that the addresses in it are those of both."""
    _, listeners = apache_listeners({"PLAINTEXT": "PLAINTEXT", "SECOND": "SASL_PLAINTEXT"}, tmp_path)
    with apache_kafka(SETTINGS | listeners | {"sasl.enabled.mechanisms": "PLAIN"}, tmp_path) as apache:
        theirs, their_loggers = observed(apache.bootstrap_servers)
    file = (tmp_path / "server.properties").read_text(encoding="utf-8")
    with EmbeddedBroker(config=known_settings(file)) as embedded:
        ours, our_loggers = observed(embedded.bootstrap("PLAINTEXT"))
    assert our_loggers == their_loggers
    found = differences(theirs, ours)
    unlisted = [
        f"{' '.join(place)}: {field}: {theirs.get(place, {}).get(field)!r} on Apache Kafka, "
        f"{ours.get(place, {}).get(field)!r} here"
        for place, fields in sorted(found.items())
        for field in sorted(fields - KNOWN.get(place[1:], (set(), ""))[0])
    ]
    if unlisted:
        pytest.fail("differences that are not listed:\n" + "\n".join(unlisted))
    outdated = {
        place: fields
        for place, (fields, _) in KNOWN.items()
        if fields != set().union(*(found.get((stage, *place), set()) for stage in STAGES))
    }
    assert outdated == {}


@pytest.mark.parametrize("kind", ["broker_core", "apache"])
def test_addresses_of_ipv6_are_described_in_brackets(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    check_ipv6()
    if kind == "apache":
        request.getfixturevalue("apache_asked_for")
    protocols = {"PLAINTEXT": "PLAINTEXT", "SIX": "PLAINTEXT"}
    with listening(kind, protocols, {}, tmp_path, {"SIX": "[::1]"}) as addresses:
        with RawClient(addresses["PLAINTEXT"]) as client:
            texts = {entry.name: entry.value for entry in documented(client, BROKER, "1")}
        assert addresses["SIX"].startswith("[::1]:")
        assert f"SIX://{addresses['SIX']}" in texts["advertised.listeners"].split(",")
        assert "SIX://[::1]:" in texts["listeners"]
