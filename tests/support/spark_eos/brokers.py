"""Fixtures that run each test on `broker_core` and, with --apache, on Apache Kafka."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest

from broker_core import EmbeddedBroker
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.apache_kafka import apache_kafka
from tests.support.both_brokers import TRANSACTION_SETTINGS, brokers_of
from tests.support.waiting import wait_until

SETTINGS = TRANSACTION_SETTINGS
LATEST_TRANSACTION_VERSION = 2
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every broker that this run has."""
    if "broker_kind" in metafunc.fixturenames:
        metafunc.parametrize("broker_kind", brokers_of(metafunc.config), indirect=True, scope="session")


@pytest.fixture(scope="session")
def broker_kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of the broker under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def kafka_address(broker_kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a broker with transactions V2; tests share it and use unique names."""
    if broker_kind == "apache":
        yield request.getfixturevalue("shared_apache").bootstrap_servers
    else:
        with running_broker(broker_kind) as address:
            yield address


@pytest.fixture(scope="session")
def tv1_address(broker_kind: str) -> Iterator[str]:
    """Return the address of a broker whose finalized `transaction.version` is 1."""
    with running_broker(broker_kind, transaction_version=1) as address:
        yield address


@contextmanager
def running_broker(kind: str, settings: Mapping[str, str] = SETTINGS, *, transaction_version: int = 2) -> Iterator[str]:
    """Run a broker of a kind until the block ends, and return its address."""
    if kind == "apache":
        with apache_kafka(settings) as apache:
            if transaction_version != 2:
                finalize(apache.bootstrap_servers, transaction_version)
            yield apache.bootstrap_servers
    else:
        with EmbeddedBroker(transaction_version=transaction_version, config=settings) as broker:
            yield broker.bootstrap_servers


def finalize(address: str, transaction_version: int) -> None:
    """Set the cluster's feature level and wait until brokers report it."""
    with KafkaClient(ClientOptions(tuple(address.split(",")))) as client:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=transaction_version,
            upgrade_type=_SAFE_DOWNGRADE if transaction_version < LATEST_TRANSACTION_VERSION else _UPGRADE,
        )
        response = client.send(
            None, UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False, min_version=1)
        )
        assert response.error_code == 0, response
        wait_until(
            lambda: client.transaction_version(refresh=True) == transaction_version,
            f"transaction.version {transaction_version}",
        )
