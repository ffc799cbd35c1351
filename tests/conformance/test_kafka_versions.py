"""`kafka_version` makes the broker answer as that release does: APIs, features, their updates, and what follows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place

from broker_core import ConfigError, EmbeddedBroker
from broker_core.coordinator.groups.consumer.records import CONSUMER_RECORDS, RecordType
from broker_core.coordinator.groups.modern_records import RecordKey
from broker_core.errors import ErrorCode
from broker_core.types import CONSUMER_OFFSETS_TOPIC
from tests.support.apache_kafka import apache_kafka
from tests.support.both_brokers import brokers_of
from tests.support.raw_client import RawClient
from tests.support.recorded_api_versions import PATCHES, advertised
from tests.support.version_answers import (
    DELETE,
    MIN_INSYNC_REPLICAS,
    SAFE,
    SET,
    UPGRADE,
    alter,
    answers_of,
    as_served,
    settings_of,
    update,
)
from tests.support.waiting import wait_until

OF_BROKER, OF_ALL, OF_FILE = 2, 3, 4
# Each node takes seconds to start; `make compatibility` compares all releases.
RELEASES = [patch for patch in PATCHES if patch.startswith(("3.9", "4.0", "4.1", "4.4"))]
PATCH_OF = {patch.rpartition(".")[0]: patch for patch in PATCHES}
DEADLINE_S = 60
KINDS = {RecordType.GROUP_EPOCH, RecordType.TARGET_EPOCH, RecordType.CURRENT}
ELIGIBLE = "eligible.leader.replicas.version"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of nodes on every broker of this run."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", brokers_of(metafunc.config))


@contextmanager
def node(kind: str, version: str, folder: Path | None = None, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Run a node of a version over a folder; return its address."""
    if kind == "apache":
        with apache_kafka(settings, folder, version=PATCH_OF[version]) as kafka:
            yield kafka.bootstrap_servers
    else:
        with EmbeddedBroker(kafka_version=version, data_dir=folder, config=settings) as kafka:
            yield kafka.bootstrap_servers


def levels_of(address: str) -> dict[str, int]:
    return {each.name: each.max_version_level for each in advertised(address).finalized_features}


# Rules J.3/8 and J.3/9.
@pytest.mark.parametrize("patch", RELEASES)
@pytest.mark.usefixtures("apache_asked_for")
def test_answers_are_those_of_the_release(patch: str):
    version = patch.rpartition(".")[0]
    with apache_kafka(version=patch) as apache, EmbeddedBroker(kafka_version=version) as kafka:
        assert answers_of(kafka.bootstrap_servers) == as_served(answers_of(apache.bootstrap_servers))


# Rule J.3/10.
def test_eligible_leaders_move_a_setting_to_the_cluster(kind: str):
    with node(kind, "4.0", settings={MIN_INSYNC_REPLICAS: "2"}) as address, RawClient(address) as client:
        assert settings_of(client, "1") == [(MIN_INSYNC_REPLICAS, "2", OF_FILE)]
        assert alter(client, "1", SET) == (ErrorCode.NONE, None)
        wait_until(lambda: settings_of(client, "1") == [(MIN_INSYNC_REPLICAS, "1", OF_BROKER)], "the broker's own")
        assert update(client, 2, (ELIGIBLE, 1, UPGRADE)) == (ErrorCode.NONE, None, [])
        wait_until(lambda: settings_of(client, "1") == [(MIN_INSYNC_REPLICAS, "2", OF_ALL)], "that of the cluster")
        assert [alter(client, name, operation)[0] for name, operation in (("1", SET), ("1", DELETE), ("", DELETE))] == [
            ErrorCode.INVALID_CONFIG
        ] * 3
        assert update(client, 2, (ELIGIBLE, 0, SAFE)) == (ErrorCode.NONE, None, [])
        wait_until(lambda: ELIGIBLE not in levels_of(address), "the level is 0")
        assert settings_of(client, "") == [(MIN_INSYNC_REPLICAS, "2", OF_ALL)]
        assert alter(client, "1", SET) == (ErrorCode.NONE, None)


# Rule J.3/7.
def test_a_newer_version_keeps_the_levels_of_a_folder(kind: str, tmp_path: Path):
    with node(kind, "3.9", tmp_path) as address:
        assert levels_of(address) == {"kraft.version": 1, "metadata.version": 21}
    with node(kind, "4.1", tmp_path) as address, RawClient(address) as client:
        assert levels_of(address) == {"kraft.version": 1, "metadata.version": 21}
        assert settings_of(client, "") == []
        assert update(client, 2, ("transaction.version", 2, UPGRADE)) == (ErrorCode.NONE, None, [])
        wait_until(lambda: levels_of(address).get("transaction.version") == 2, "transactions V2")


# Rule J.3/7.
def test_an_older_version_does_not_start_over_a_folder(kind: str, tmp_path: Path):
    with node(kind, "4.0", tmp_path):
        pass
    with pytest.raises((AssertionError, ConfigError), match=r"Kafka ended with exit status 1|Kafka 3\.9 cannot open"):
        with node(kind, "3.9", tmp_path):
            pass
    with node(kind, "4.0", tmp_path) as address:
        assert levels_of(address)["metadata.version"] == 25


def recorded_groups(address: str) -> Iterator[tuple[RecordKey[RecordType], Any, bytes]]:
    """Yield the key, the value and the bytes of each record of a consumer group."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True})
    try:
        partitions = reader.list_topics(timeout=DEADLINE_S).topics[CONSUMER_OFFSETS_TOPIC].partitions
        reader.assign([Place(CONSUMER_OFFSETS_TOPIC, each, OFFSET_BEGINNING) for each in partitions])
        left = len(partitions)
        while left:
            message = reader.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left -= 1
            elif message.value() is not None and int.from_bytes(message.key()[:2], "big") in KINDS:
                key = CONSUMER_RECORDS.read_key(message.key())
                yield key, CONSUMER_RECORDS.read_value(key.kind, message.value()), message.value()
    finally:
        reader.close()


# Rule B.3/8.
@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("4.0", set()),
        ("4.1", {RecordType.GROUP_EPOCH}),
        ("4.2", {RecordType.GROUP_EPOCH}),
        ("4.3", KINDS),
        ("4.4", KINDS),
    ],
)
def test_a_consumer_group_is_recorded_as_the_version_does(kind: str, version: str, fields: set[RecordType]):
    """Which kinds of records have their tagged field; the records of no partitions have none anyway."""
    with node(kind, version) as address:
        settings = {"bootstrap.servers": address, "auto.offset.reset": "earliest"}
        producer = Producer(settings)
        producer.produce("in", b"value")
        assert producer.flush(DEADLINE_S) == 0
        consumer = Consumer(settings | {"group.id": "g", "group.protocol": "consumer"})
        try:
            consumer.subscribe(["in"])
            assert consumer.poll(DEADLINE_S) is not None
            found: dict[RecordType, set[bool]] = {}
            for key, value, data in recorded_groups(address):
                if key.kind is not RecordType.CURRENT:
                    found.setdefault(key.kind, set()).add(value[1] != 0)
                elif value.assigned:
                    found.setdefault(key.kind, set()).add(CONSUMER_RECORDS.record(key, value).value == data)
            assert found == {each: {each in fields} for each in KINDS}
        finally:
            consumer.close()
