"""The brokers under test, their settings, and the node of Apache Kafka that most tests share."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.apache_kafka import KEEPS_OLD_RECORDS, apache_kafka

BROKERS = ("broker_core", "apache")
# Few partitions start quickly, and scans run often, so that tests wait less.
TRANSACTION_SETTINGS = KEEPS_OLD_RECORDS | {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
# Members of groups report often, and a member can return soon after its broker was away.
SETTINGS = TRANSACTION_SETTINGS | {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "5000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
}
# The broker that is restarted also compacts without a delay.
DURABLE_SETTINGS = SETTINGS | {"log.cleaner.backoff.ms": "100"}


def brokers_of(config: pytest.Config) -> tuple[str, ...]:
    """Return the kinds of brokers of this run: `broker_core` and, with --apache, Apache Kafka."""
    return BROKERS if config.getoption("--apache") else BROKERS[:1]


@dataclass(frozen=True)
class Kafka:
    """What a test knows of the broker under test."""

    bootstrap_servers: str
    name: str = "broker_core"


@pytest.fixture(scope="session")
def shared_apache() -> Iterator[Kafka]:
    """Return a node of Apache Kafka that runs until the end of the tests, which use unique topics, groups and ids.

    It has no parameter: a fixture with one ends when the next test uses `broker_core`, so that a node started again and
    again.
    """
    with apache_kafka(SETTINGS) as apache:
        yield Kafka(apache.bootstrap_servers, "apache")
