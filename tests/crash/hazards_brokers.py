"""A broker of each kind for the hazard tests, and one Spark session for all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.hazards_query import Hazard
from tests.support.both_brokers import brokers_of
from tests.support.spark_eos.brokers import running_broker
from tests.support.spark_eos.spark_session import failpoints_file, spark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every kind of broker of this run."""
    if "hazard_kind" in metafunc.fixturenames:
        metafunc.parametrize("hazard_kind", brokers_of(metafunc.config), indirect=True, scope="module")


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
        return Hazard(spark, tmp_path, failpoints_file, address or broker, broker)

    yield make
    failpoints_file.unlink(missing_ok=True)
    # A query of a failed test must not keep a slot either.
    for held in tmp_path.glob("held-*"):
        held.unlink()
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def hazard(hazard_at: Callable[..., Hazard], hazard_address: str) -> Hazard:
    """Return what a test works with on the shared broker."""
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
