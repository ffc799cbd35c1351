"""A group coordinator for each test."""

import pytest

from tests.support.broker_core.group_world import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    """Return a coordinator without groups."""
    return GroupWorld()
