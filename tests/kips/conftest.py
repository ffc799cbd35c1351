"""A separate cluster for each test."""

import pytest

from tests.support.broker_core.kip_world import Session, World


@pytest.fixture
def world() -> World:
    """Return a cluster of one broker in memory."""
    return World()


@pytest.fixture
def session(world: World) -> Session:
    """Return a session with an unused transactional id."""
    return world.session()
