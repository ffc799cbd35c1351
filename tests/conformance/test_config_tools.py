"""kafka-features.sh, kafka-client-metrics.sh and kafka-configs.sh print the same on Apache Kafka and here."""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.both_brokers import Kafka
from tests.support.clients import unique
from tests.support.java_tools import java_tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("apache_asked_for")
_EPOCH = re.compile(r"Epoch: \d+")


def configs(address: str, *arguments: str) -> list[str]:
    """Run kafka-configs.sh; return the lines it prints."""
    return java_tool("kafka.admin.ConfigCommand", "--bootstrap-server", address, *arguments).output.splitlines()


def tool(name: str, address: str, *arguments: str) -> list[str]:
    """Run another tool; return the lines it prints, without epochs."""
    printed = java_tool(name, "--bootstrap-server", address, *arguments).output
    return [" ".join(_EPOCH.sub("Epoch: *", line).split()) for line in printed.splitlines()]


def assert_soon(printed: Callable[[], list[str]], expected: list[str]) -> None:
    """Wait until a change shows: Apache Kafka's broker applies it a moment after its controller has answered."""
    seen: list[str] = []

    def is_expected() -> bool:
        seen[:] = printed()
        return seen == expected

    with suppress(AssertionError):
        wait_until(is_expected, "the change shows", deadline_s=20)
    assert seen == expected


def test_features(kafka: Kafka):
    def row(name: str, lowest: object, highest: object, level: object) -> str:
        return (
            f"Feature: {name} SupportedMinVersion: {lowest} SupportedMaxVersion: {highest} "
            f"FinalizedVersionLevel: {level} Epoch: *"
        )

    assert tool("FeatureCommand", kafka.bootstrap_servers, "describe") == [
        row("eligible.leader.replicas.version", 0, 1, 1),
        row("group.version", 0, 1, 1),
        row("kraft.version", 0, 1, 1),
        # The tool is of 4.3 and does not know the newest level by name.
        row("metadata.version", "3.3-IV3", "UNKNOWN 33", "UNKNOWN 33"),
        row("share.version", 0, 2, 2),
        row("streams.version", 0, 1, 1),
        row("transaction.version", 0, 2, 2),
    ]


def test_client_metrics(kafka: Kafka):
    name, address = unique("metrics"), kafka.bootstrap_servers
    match, metrics = "client_id=a", "org.apache.kafka.producer."
    assert tool(
        "ClientMetricsCommand",
        address,
        *("--alter", "--name", name, "--metrics", metrics, "--interval", "30000", "--match", match),
    ) == [f"Altered client metrics config for {name}."]
    expected = [
        f"Client metrics configs for {name} are:",
        "interval.ms=30000",
        f"match={match}",
        f"metrics={metrics}",
    ]
    assert_soon(lambda: tool("ClientMetricsCommand", address, "--describe", "--name", name), expected)
    assert tool("ClientMetricsCommand", address, "--list") == [name]
    assert tool("ClientMetricsCommand", address, "--delete", "--name", name) == [
        f"Deleted client metrics config for {name}."
    ]


def test_settings_of_brokers(kafka: Kafka):
    address, of_broker = kafka.bootstrap_servers, ("--entity-type", "brokers", "--entity-name", "1")
    wanted = "log.retention.ms=3600000,log.cleaner.threads=2"
    done = ["Completed updating config for broker 1."]
    assert configs(address, *of_broker, "--alter", "--add-config", wanted) == done
    expected = [
        "Dynamic configs for broker 1 are:",
        "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        "DEFAULT_CONFIG:log.cleaner.threads=1}",
        "  log.retention.ms=3600000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=3600000, "
        "DEFAULT_CONFIG:log.retention.hours=168}",
        "Default configs for brokers in the cluster are:",
        "  min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}",
    ]
    assert_soon(lambda: configs(address, "--entity-type", "brokers", "--describe"), expected)
    assert configs(address, *of_broker, "--alter", "--delete-config", "log.retention.ms,log.cleaner.threads") == done


def test_settings_of_groups(kafka: Kafka):
    group = unique("group")
    place = ("--entity-type", "groups", "--entity-name", group)
    done = [f"Completed updating config for group {group}."]
    key = "consumer.session.timeout.ms"
    assert configs(kafka.bootstrap_servers, *place, "--alter", "--add-config", f"{key}=46000") == done
    expected = [
        f"Dynamic configs for group {group} are:",
        f"  {key}=46000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{key}=46000, "
        f"STATIC_BROKER_CONFIG:group.{key}=5000, DEFAULT_CONFIG:group.{key}=45000}}",
    ]
    assert_soon(lambda: configs(kafka.bootstrap_servers, *place, "--describe"), expected)
    assert configs(kafka.bootstrap_servers, *place, "--alter", "--delete-config", key) == done


def test_quotas(kafka: Kafka):
    user, client = unique("user"), unique("client")
    place = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", client)
    done = [f"Completed updating config for user {user}."]
    wanted = "producer_byte_rate=1024,request_percentage=12.5"
    assert configs(kafka.bootstrap_servers, *place, "--alter", "--add-config", wanted) == done
    expected = [
        f"Quota configs for user-principal '{user}', client-id '{client}' are "
        "request_percentage=12.5, producer_byte_rate=1024.0"
    ]
    assert_soon(lambda: configs(kafka.bootstrap_servers, *place, "--describe"), expected)
    removed = "producer_byte_rate,request_percentage"
    assert configs(kafka.bootstrap_servers, *place, "--alter", "--delete-config", removed) == done
