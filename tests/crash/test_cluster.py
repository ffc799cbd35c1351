"""A short round of the scenarios on three nodes of Apache Kafka; `make crash` runs all of them."""

import random
from pathlib import Path

import pytest

from tests.crash.cluster_rounds import KIND, ClusterRounds
from tests.crash.drivers import drivers
from tests.support.apache_cluster import GROUP, apache_cluster

SEED = 12


@pytest.fixture(autouse=True)
def apache_enabled(request: pytest.FixtureRequest) -> None:
    """Skip the module unless tests may start Apache Kafka."""
    if not request.config.getoption("--apache"):
        pytest.skip("starts three nodes of Apache Kafka: run with --apache")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_rows_are_visible_once_while_a_cluster_of_three_fails(tmp_path: Path) -> None:
    said: list[str] = []
    with drivers(tmp_path) as pool:
        rounds = ClusterRounds(pool, random.Random(SEED), said.append, cuts=1, is_short=True)
        assert rounds.run(KIND, tmp_path / KIND, 2) == [], said


def test_isolated_node_sends_clients_stale_responses(tmp_path: Path) -> None:
    with apache_cluster(tmp_path / KIND) as cluster:
        former = cluster.wait_for_coordinator(GROUP, "group")
        cluster.cut(former)
        new = cluster.wait_for_coordinator(GROUP, "group", without=[former])
        assert cluster.coordinator(GROUP, "group", former) == former
        cluster.repair()
        assert cluster.coordinator(GROUP, "group", former) == new
