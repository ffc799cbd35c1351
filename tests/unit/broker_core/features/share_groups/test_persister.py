"""Requests to share coordinators that cannot be reached."""

from uuid import UUID

import pytest

from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.states.coordinator import Persister, ShareCoordinator
from broker_core.features.share_groups.states.state import SharePartitionKey

KEY = SharePartitionKey("g", UUID(int=1), 0)


def no_leader(_key: str) -> ShareCoordinator | None:
    return None


def no_topic(_key: str) -> ShareCoordinator | None:
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")


@pytest.mark.parametrize("coordinator_of", [no_leader, no_topic])
def test_without_a_coordinator_each_request_has_its_error(coordinator_of) -> None:
    persister, place = Persister(coordinator_of, lambda: 0), TopicIdPartition(KEY.topic_id, KEY.partition)
    found = [
        persister.initialize("g", 0, {place: 0})[place].error,
        persister.delete("g", [place])[place].error,
        persister.read(KEY, 0).outcome.error,
        persister.summarize(KEY).outcome.error,
    ]
    assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
