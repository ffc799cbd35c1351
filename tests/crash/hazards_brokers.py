"""A broker of each kind for the hazards, and one Spark session for all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.hazards_query import Hazard
from tests.support.spark_eos.brokers import BROKERS, running_broker
from tests.support.spark_eos.spark_session import failpoints_file, spark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask every broker that this run knows of, one after the other."""
    if "hazard_kind" in metafunc.fixturenames:
        brokers = BROKERS if metafunc.config.getoption("--apache") else BROKERS[:1]
        metafunc.parametrize("hazard_kind", brokers, indirect=True, scope="module")


@pytest.fixture(scope="module")
def hazard_kind(request: pytest.FixtureRequest) -> str:
    """Name the kind of broker that a test asks."""
    return str(request.param)


@pytest.fixture(scope="module")
def hazard_address(hazard_kind: str) -> Iterator[str]:
    """Return the address of a broker that speaks transactions V2."""
    with running_broker(hazard_kind) as address:
        yield address


@pytest.fixture
def hazard_at(spark: SparkSession, failpoints_file: Path, tmp_path: Path) -> Iterator[Callable[..., Hazard]]:
    """Return what makes a `Hazard` for a broker's address, and leave nothing armed, held or running."""

    def make(broker: str, address: str | None = None) -> Hazard:
        return Hazard(spark, tmp_path, failpoints_file, address or broker, broker)

    yield make
    failpoints_file.unlink(missing_ok=True)
    # After a failed test, too, no query keeps a slot.
    for held in tmp_path.glob("held-*"):
        held.unlink()
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def hazard(hazard_at: Callable[..., Hazard], hazard_address: str) -> Hazard:
    """Return what a test works with on the broker that is shared."""
    return hazard_at(hazard_address)


__all__ = [
    "failpoints_file",
    "hazard",
    "hazard_address",
    "hazard_at",
    "hazard_kind",
    "pytest_generate_tests",
    "spark",
]
