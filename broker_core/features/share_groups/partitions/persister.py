"""The way from the leaders of partitions and the group coordinators to the share coordinators of the cluster."""

from collections.abc import Callable, Collection, Mapping

from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.states.coordinator import ShareCoordinator, coordinator_key
from broker_core.features.share_groups.states.state import (
    Outcome,
    SharePartitionKey,
    ShareRead,
    ShareSummary,
    ShareWrite,
    standard_error,
)


class Persister:
    """The requests to share coordinators, each to the leader of its key's partition.

    `coordinator_of` finds it by the text of the key; it returns None, or raises `KafkaError`, if none can be reached.
    """

    def __init__(self, coordinator_of: Callable[[str], ShareCoordinator | None], now_ms: Callable[[], int]) -> None:
        self._coordinator_of = coordinator_of
        self._now_ms = now_ms

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, Outcome]:
        now_ms = self._now_ms()
        outcomes = {}
        for each, start_offset in start_offsets.items():
            key = SharePartitionKey(group_id, *each)
            outcomes[each] = self._outcome(key, ShareCoordinator.initialize, state_epoch, start_offset, now_ms)
        return outcomes

    def delete(self, group_id: str, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, Outcome]:
        keys = {each: SharePartitionKey(group_id, *each) for each in sorted(partitions)}
        return {each: self._outcome(key, ShareCoordinator.delete, self._now_ms()) for each, key in keys.items()}

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareRead:
        try:
            return self._find(key).read(key, leader_epoch, self._now_ms())
        except KafkaError as error:
            return ShareRead(Outcome(error.code, error.message))

    def write(self, key: SharePartitionKey, write: ShareWrite) -> Outcome:
        return self._outcome(key, ShareCoordinator.write, write, self._now_ms())

    def summarize(self, key: SharePartitionKey) -> ShareSummary:
        try:
            return self._find(key).summarize(key)
        except KafkaError as error:
            return ShareSummary(Outcome(error.code, error.message))

    def _outcome(self, key: SharePartitionKey, change: Callable[..., None], *arguments: object) -> Outcome:
        try:
            change(self._find(key), key, *arguments)
        except KafkaError as error:
            return Outcome(error.code, error.message)
        return Outcome()

    def _find(self, key: SharePartitionKey) -> ShareCoordinator:
        try:
            found = self._coordinator_of(coordinator_key(key))
        except KafkaError:
            found = None
        if found is None:
            raise standard_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found
