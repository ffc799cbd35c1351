"""The way from the leaders of partitions and the group coordinators to the share coordinators of the cluster."""

from collections.abc import Callable, Collection, Mapping

from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.states.coordinator import ShareCoordinator, coordinator_key
from broker_core.features.share_groups.states.requests import Outcome, ShareRead, ShareSummary, ShareWrite
from broker_core.features.share_groups.states.state import SharePartitionKey


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
            found = self._coordinator_of(coordinator_key(key))
        except KafkaError:
            found = None
        return Outcome.of(ErrorCode.COORDINATOR_NOT_AVAILABLE) if found is None else found
