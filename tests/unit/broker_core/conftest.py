"""What many tests of the broker begin with."""

import pytest

from broker_core.log.partition_log import PartitionLog
from broker_core.simulation.disk import MemoryStorage
from tests.support.broker_core.moves_world import MovesWorld, open_world
from tests.support.partition_logs import open_log


@pytest.fixture
def storage() -> MemoryStorage:
    """Return empty memory storage."""
    return MemoryStorage()


@pytest.fixture
def log() -> PartitionLog:
    """Return an empty log in memory."""
    return open_log()


@pytest.fixture
def world(protocol: int) -> MovesWorld:
    """Return brokers with a producer of the test's protocol."""
    return open_world(protocol)
