"""Fixtures of the crash tests: a broker behind a proxy and waiting drivers, shared by all; brokers of the hazards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.drivers import DriverPool, drivers
from tests.crash.hazards_query import Hazard
from tests.crash.world import World, world
from tests.support.both_brokers import brokers_of
from tests.support.short_form import chosen, leave_out
from tests.support.spark_eos.brokers import running_broker
from tests.support.spark_eos.holds import Holds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every kind of broker of this run."""
    for name, scope in (("here", "session"), ("hazard_kind", "module")):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, brokers_of(metafunc.config), indirect=True, scope=scope)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out two thirds of the hazards, each of which starts queries, in the short form."""
    hazards = [item for item in items if item.path.name.startswith("test_hazards_")]
    if hazards:
        leave_out(config, items, set(hazards) - set(chosen(hazards, "hazards of a query", of=3)))


@pytest.fixture(scope="session")
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return the broker."""
    with world(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverPool]:
    """Return the drivers."""
    # The round of each broker uses one driver that is killed and one that continues.
    with drivers(tmp_path_factory.mktemp("drivers"), ahead=2) as made:
        yield made


@pytest.fixture(scope="module")
def hazard_kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of broker of a test."""
    return str(request.param)


@pytest.fixture(scope="module")
def hazard_address(hazard_kind: str) -> Iterator[str]:
    """Return the address of a broker with transactions V2."""
    with running_broker(hazard_kind) as address:
        yield address


@pytest.fixture
def hazard_at(spark: SparkSession, failpoints_file: Path, tmp_path: Path) -> Iterator[Callable[..., Hazard]]:
    """Return what makes a `Hazard` for a broker's address, and leave nothing armed, held or running."""

    def make(broker: str, address: str | None = None) -> Hazard:
        return Hazard(tmp_path, failpoints_file, spark, address or broker, broker)

    yield make
    Holds(tmp_path, failpoints_file).end()
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def hazard(hazard_at: Callable[..., Hazard], hazard_address: str) -> Hazard:
    """Return what a test works with on the shared broker."""
    return hazard_at(hazard_address)
