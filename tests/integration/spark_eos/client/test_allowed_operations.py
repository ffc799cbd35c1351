"""The right to write to a topic, as one broker or all of them report it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from broker_core import Disconnect, EmbeddedBroker
from broker_core.config import STANDARD_AUTHORIZER
from broker_core.security.acls import Operation, PatternType, Permission, ResourceType
from spark_eos.client.allowed_operations import is_write_refused, topic_operations
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import client_options
from tests.support.guarded_kafka import create_acls
from tests.support.raw_client import RawClient

STALE, BROKERS, TOPIC = 2, 3, "decisions"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        brokers=BROKERS, topics={TOPIC: 1}, listeners=LISTENERS, users={"driver": "secret"}, config=SETTINGS
    ) as kafka:
        grant(kafka, Operation.DESCRIBE)
        yield kafka


@pytest.fixture
def client(kafka: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaClient]:
    """Return the principal's client, which takes the broker that will be cut off for any broker."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap("SASL"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="driver" password="secret";',
    }
    with KafkaClient(client_options(options)) as client:
        client.metadata([])
        monkeypatch.setattr(client.transport, "any_node", lambda: STALE)
        yield client


def grant(kafka: EmbeddedBroker, operation: Operation) -> None:
    acl: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:driver",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    with closing(RawClient(kafka.bootstrap("PLAINTEXT").partition(",")[0])) as root:
        assert create_acls(root, acl) == [0]


def test_right_that_no_broker_knows_is_refused(client: KafkaClient) -> None:
    assert is_write_refused(client, TOPIC)


def test_one_outdated_broker_refuses_nothing(kafka: EmbeddedBroker, client: KafkaClient) -> None:
    with kafka.stale_broker(STALE):
        grant(kafka, Operation.WRITE)
        assert Operation.WRITE not in topic_operations(client, [TOPIC])[TOPIC]
        assert not is_write_refused(client, TOPIC)


def test_broker_that_does_not_answer_is_passed_over(kafka: EmbeddedBroker, client: KafkaClient) -> None:
    grant(kafka, Operation.WRITE)
    with kafka.fault(api="Metadata", broker=STALE, action=Disconnect()) as fault:
        assert not is_write_refused(client, TOPIC)
    assert fault.hits == 1
