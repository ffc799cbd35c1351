"""The way from the leaders of partitions and the group coordinators to the share coordinators of the cluster."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.coordinator.shares.coordinator import ShareCoordinator, coordinator_key
from broker_core.coordinator.shares.requests import Outcome, ShareRead, ShareSummary, ShareWrite
from broker_core.coordinator.shares.state import SharePartitionKey
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import SHARE_GROUP_STATE_TOPIC, TopicPartition


class Coordinating(Protocol):
    """A broker that may be a share coordinator."""

    @property
    def share_states(self) -> ShareCoordinator:
        """Return its share coordinator."""
        ...


class Placement(Protocol):
    """The part of the controller that finds coordinators."""

    def coordinator_partition_of(self, topic_name: str, key: str) -> TopicPartition:
        """Return the partition of an internal topic that a key belongs to."""
        ...

    def leader_of(self, topic_partition: TopicPartition) -> Coordinating | None:
        """Return the broker that leads a partition, or None while it has no leader."""
        ...


class Persister:
    """The requests to share coordinators, each to the one that leads the key's partition."""

    def __init__(self, placement: Placement, now_ms: Callable[[], int]) -> None:
        self._placement = placement
        self._now_ms = now_ms

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, Outcome]:
        """Initialize the states of partitions for a group."""
        outcomes = {}
        for each, start_offset in start_offsets.items():
            key = SharePartitionKey(group_id, *each)
            found = self._find(key)
            outcomes[each] = (
                found
                if isinstance(found, Outcome)
                else found.initialize(key, state_epoch, start_offset, self._now_ms())
            )
        return outcomes

    def delete(self, group_id: str, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, Outcome]:
        """Delete the states of partitions for a group."""
        outcomes = {}
        for each in sorted(partitions):
            key = SharePartitionKey(group_id, *each)
            found = self._find(key)
            outcomes[each] = found if isinstance(found, Outcome) else found.delete(key, self._now_ms())
        return outcomes

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareRead:
        """Read a state for the leader of its partition."""
        found = self._find(key)
        if isinstance(found, Outcome):
            return ShareRead(found)
        return found.read(key, leader_epoch, self._now_ms())

    def write(self, key: SharePartitionKey, write: ShareWrite) -> Outcome:
        """Write a state for the leader of its partition."""
        found = self._find(key)
        return found if isinstance(found, Outcome) else found.write(key, write, self._now_ms())

    def summarize(self, key: SharePartitionKey) -> ShareSummary:
        """Read a state for an administrator."""
        found = self._find(key)
        return ShareSummary(found) if isinstance(found, Outcome) else found.summarize(key)

    def _find(self, key: SharePartitionKey) -> ShareCoordinator | Outcome:
        """Return the coordinator of a key, or the error if there is none that can be reached."""
        try:
            place = self._placement.coordinator_partition_of(SHARE_GROUP_STATE_TOPIC, coordinator_key(key))
            leader = self._placement.leader_of(place)
        except KafkaError:
            leader = None
        return Outcome.of(ErrorCode.COORDINATOR_NOT_AVAILABLE) if leader is None else leader.share_states
