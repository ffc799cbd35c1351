"""What many tests of the broker begin with."""

import pytest

from broker_core.log.partition_log import PartitionLog
from broker_core.simulation.disk import MemoryStorage
from tests.support.partition_logs import open_log


@pytest.fixture
def storage() -> MemoryStorage:
    """Return empty memory storage."""
    return MemoryStorage()


@pytest.fixture
def log() -> PartitionLog:
    """Return an empty log in memory."""
    return open_log()
