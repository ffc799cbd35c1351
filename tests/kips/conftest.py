"""A separate cluster for each test, and a guard: opening a connection or starting a process fails."""

import pytest

from tests.support.broker_core.kip_world import Session, World
from tests.support.no_network import pytest_runtest_call, pytest_runtest_setup
from tests.support.raw_session import Identity

__all__ = ("pytest_runtest_call", "pytest_runtest_setup")


@pytest.fixture
def world() -> World:
    """Return a cluster of one broker in memory."""
    return World()


@pytest.fixture
def session(world: World) -> Session:
    """Return a session with an unused transactional id."""
    return world.session()


@pytest.fixture
def identity(session: Session) -> Identity:
    """Return the identity of a producer that has initialized the id."""
    return session.init()[1]
