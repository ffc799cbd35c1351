"""A cluster in memory for each test."""

import pytest

from tests.support.spark_eos.sink_cluster import MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    """Return a cluster without ids; `tests.support.spark_eos.sink_commits` has one for each protocol."""
    return MemoryCluster()
