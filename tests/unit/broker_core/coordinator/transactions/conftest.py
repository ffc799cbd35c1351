"""A transaction coordinator for each test."""

import pytest

from broker_core.types import ProducerIdentity
from tests.support.broker_core.transaction_world import World


@pytest.fixture
def world() -> World:
    """Return a coordinator without ids."""
    return World()


@pytest.fixture
def held(world: World) -> ProducerIdentity:
    """Return the identity of a producer that has initialized the id."""
    return world.identity()
