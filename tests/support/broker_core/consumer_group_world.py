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
TOPICS = (("t",), ("t", "u"), ("u",))


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
        facts = self.topics.topics.get(name)
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
        return {(self.topics.names.get(topic_id, "?"), number) for topic_id, number in result.assigned}

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


class Client:
    """A consumer that reads its previous assignment until it has taken in the current one."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        self._world = world
        self._name = name
        self.topics: tuple[str, ...] = TOPICS[0]
        self.epoch: int | None = None
        self._reset()

    def _reset(self) -> None:
        self.assigned: Owned = set()
        self.reads: Owned = set()
        self._tells_all = True

    def beat(self, *, is_lost: bool = False) -> None:
        """Send a heartbeat; with `is_lost` its response does not arrive, so that the next heartbeat has all fields."""
        if self.epoch is None:
            self._reset()
        full = {"topics": self.topics, "rebalance_timeout_ms": 10**9} if self._tells_all else {}
        answer = self._world.beat(self._name, self.epoch or 0, owned=set(self.reads), **full)
        if is_lost:
            self._tells_all = True
        elif answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = None
            self._reset()
        else:
            assert answer.error is ErrorCode.NONE, answer
            self.epoch = answer.member_epoch
            self._tells_all = False
            if answer.assigned is not None:
                self.assigned = self._world.named(answer) or set()

    def take_in(self) -> None:
        """Stop reading revoked partitions and start reading new ones."""
        self.reads = set(self.assigned)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Change the subscription from the next heartbeat on."""
        self.topics = topics
        self._tells_all = True

    def leave(self) -> None:
        """Stop reading and leave the group."""
        self._reset()
        if self.epoch is not None:
            self._world.beat(self._name, LEAVE)
        self.epoch = None
