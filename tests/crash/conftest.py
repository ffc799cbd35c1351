"""Fixtures of the crash tests: a broker behind a proxy, and waiting drivers, both shared by all tests."""

from collections.abc import Iterator

import pytest

from tests.crash.drivers import DriverPool, drivers
from tests.crash.world import World, world
from tests.support.both_brokers import brokers_of
from tests.support.short_form import chosen, leave_out


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every kind of broker of this run."""
    if "here" in metafunc.fixturenames:
        metafunc.parametrize("here", brokers_of(metafunc.config), indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out half of the hazards, each of which starts queries, in the short form."""
    hazards = [item for item in items if item.path.name.startswith("test_hazards_")]
    if hazards:
        leave_out(config, items, set(hazards) - set(chosen(hazards, "hazards of a query", of=2)))


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
