"""Give each test a cluster of its own."""

import pytest

from tests.support.broker_core.kip_world import Session, World


@pytest.fixture
def world() -> World:
    """Give a cluster of one broker in memory."""
    return World()


@pytest.fixture
def session(world: World) -> Session:
    """Give a transactional id that nobody has used."""
    return world.session()
