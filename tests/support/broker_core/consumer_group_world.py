"""Consumer groups (KIP-848) over one in-memory journal, with topics and a clock that a test changes."""

from typing import Any

from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.coordinator.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from broker_core.errors import ErrorCode
from tests.support.broker_core.group_world import GROUP, FakeTopics, GroupWorld

LEAVE, LEAVE_FOR_A_WHILE = -1, -2
SESSION_MS = 45_000
REVOCATION_MS = 60_000
Owned = set[tuple[str, int]]


class ConsumerWorld(GroupWorld):
    """One leading coordinator, and topics `t` of four and `u` of three partitions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(topics=FakeTopics(t=4, u=3), **settings)

    @property
    def consumers(self) -> ConsumerGroup:
        """Return the group object of the coordinator."""
        return self.shard().consumer_groups[GROUP]

    def partition(self, name: str, number: int) -> TopicIdPartition:
        """Return a partition as the protocol names it."""
        facts = self.topics.find(name)
        assert facts is not None
        return TopicIdPartition(facts.topic_id, number)

    def enter(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatResult:
        """Join the group, subscribed to `t` by default."""
        usual: dict[str, Any] = {"topics": topics or ("t",), "rebalance_timeout_ms": REVOCATION_MS, "owned": set()}
        return self.beat(member_id, 0, **usual | fields)

    def beat(self, member_id: str, epoch: int, *, owned: Owned | None = None, **fields: Any) -> ConsumerHeartbeatResult:
        """Send one heartbeat; `owned` has topic names."""
        reported = None if owned is None else frozenset(self.partition(*each) for each in owned)
        return self.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(GROUP, member_id, epoch, owned=reported, **fields), self.now_ms
        )

    def named(self, result: ConsumerHeartbeatResult) -> Owned | None:
        """Return a heartbeat's assignment by topic name."""
        assert result.error is ErrorCode.NONE, result
        if result.assigned is None:
            return None
        return {(self.topics.name_of(topic_id) or "?", number) for topic_id, number in result.assigned}

    def settle_members(self, **epochs: int) -> dict[str, Owned]:
        """Let the members act as real ones do until the assignment is stable; return what each member has."""
        has: dict[str, Owned] = {member_id: set() for member_id in epochs}
        for _ in range(20):
            for member_id in epochs:
                result = self.beat(member_id, epochs[member_id], owned=has[member_id])
                told = self.named(result)
                epochs[member_id] = result.member_epoch
                has[member_id] = has[member_id] if told is None else told
        assert self.consumers.state.value == "Stable", self.consumers.members
        return has
