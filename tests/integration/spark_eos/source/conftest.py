"""A topic for each test."""

import pytest

from tests.support.spark_eos.source_data import create_topic


@pytest.fixture
def topic(kafka_address: str) -> str:
    """Return the name of an empty topic."""
    return create_topic(kafka_address)
