"""Run each conformance test on `broker_core` and, when asked with --apache, on Apache Kafka."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.apache_kafka import Unavailable, apache_kafka

BROKERS = ("broker_core", "apache")

# Few partitions make a quick start; the abort scan runs often so that no test has to wait for it.
SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@dataclass(frozen=True)
class Kafka:
    """Hold all that a conformance test may know of the broker it asks."""

    bootstrap_servers: str


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask every broker that this run knows of, one after the other."""
    if "kafka" in metafunc.fixturenames:
        brokers = BROKERS if metafunc.config.getoption("--apache") else BROKERS[:1]
        metafunc.parametrize("kafka", brokers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def apache_asked_for(request: pytest.FixtureRequest) -> None:
    """Skip what makes no sense without Apache Kafka, unless this run was told to use it."""
    if not request.config.getoption("--apache"):
        pytest.skip("needs Apache Kafka, that is Java and Maven: run with --apache")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Give a running broker; it is shared, so every test has topics, groups and ids of its own."""
    if request.param == "apache":
        try:
            with apache_kafka(SETTINGS) as apache:
                yield Kafka(apache.bootstrap_servers)
        except Unavailable as problem:
            pytest.skip(str(problem))
    else:
        from broker_core.embedded import EmbeddedBroker

        with EmbeddedBroker(config=SETTINGS) as embedded:
            yield Kafka(embedded.bootstrap_servers)
