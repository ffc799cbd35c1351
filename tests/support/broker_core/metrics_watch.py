"""A cluster and the change of its metrics from step to step."""

import pytest

from broker_core.simulation.disk import MemoryStorage
from broker_core.types import TRANSACTION_STATE_TOPIC
from tests.support.broker_core.requests import TOPIC, init_producer, produced, transactional
from tests.support.direct import direct_cluster

SETTINGS = {"transaction.state.log.num.partitions": "3"}


class Watch:
    """A clock for tests: each reading advances it by `step_ms`."""

    def __init__(self) -> None:
        self.now_ms = 500.0
        self.step_ms = 0.0

    def __call__(self) -> float:
        self.now_ms += self.step_ms
        return self.now_ms


@pytest.fixture
def storage():
    return MemoryStorage()


@pytest.fixture
def cluster(storage):
    cluster = direct_cluster(storage, settings=SETTINGS)
    cluster.controller.create_topic(TOPIC, 2)
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    return cluster


def begin(client, *, version=12, partitions=(0,)):
    """Produce in a transaction and return the producer."""
    identity = init_producer(client)
    for partition in partitions:
        assert (
            produced(
                client, transactional(identity, 2), transactional_id="id", version=version, partition=partition
            ).error_code
            == 0
        )
    return identity
