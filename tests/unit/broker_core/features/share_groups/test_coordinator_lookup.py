"""The share coordinator of a share partition that cannot be reached."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import ShareBroker
from broker_core.features.share_groups.states.state import SharePartitionKey
from broker_core.types import SHARE_GROUP_STATE_TOPIC, TopicPartition

PLACE = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)


def found(_topic: str, _key: str) -> TopicPartition:
    return PLACE


def no_topic(_topic: str, _key: str) -> TopicPartition:
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("partition_of", [found, no_topic])
def test_without_a_leader_it_is_not_available(partition_of) -> None:
    controller = SimpleNamespace(coordinator_partition_of=partition_of, leader_of=lambda _place: None)
    shares = ShareBroker.__new__(ShareBroker)
    shares._broker = SimpleNamespace(controller=controller)
    with pytest.raises(KafkaError) as raised:
        shares.coordinator_of(SharePartitionKey("g", UUID(int=1), 0))
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
