"""A group coordinator over one in-memory journal, with a clock that a test advances."""

from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.requests import (
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.groups.offsets.store import OffsetCommit, OffsetToCommit
from broker_core.coordinator.groups.shard import GroupShard
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition, TransactionEnd
from tests.support.broker_core.memory_journal import MemoryJournal

GROUP = "group-1"
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
PRODUCER = ProducerIdentity(4000, 5)
NONE = ErrorCode.NONE
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_700_000_000_000

Result = TypeVar("Result")


def subscription(*topics: str) -> bytes:
    """Encode a consumer's subscription, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class Answer(Generic[Result]):
    """A receiver of exactly one response; a second one is an error."""

    def __init__(self) -> None:
        self.result: Result | None = None

    def __call__(self, result: Result) -> None:
        assert self.result is None, f"second answer {result} after {self.result}"
        self.result = result

    @property
    def waits(self) -> bool:
        """Return whether no response has arrived."""
        return self.result is None

    @property
    def now(self) -> Result:
        """Return the response, which must have arrived."""
        assert self.result is not None, "not answered"
        return self.result


class FakeTopic(NamedTuple):
    """The `TopicFacts` of one topic."""

    topic_id: UUID
    partition_count: int


class FakeTopics:
    """The `Topics` of a cluster; ids are counted, so a recreated topic has another id."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics_version = 0
        self.topics: dict[str, FakeTopic] = {}
        self._made = 0
        for name, count in partition_counts.items():
            self.make(name, count)

    @property
    def names(self) -> dict[UUID, str]:
        return {facts.topic_id: name for name, facts in self.topics.items()}

    def make(self, name: str, partition_count: int) -> None:
        """Create a topic."""
        self._made += 1
        self.topics[name] = FakeTopic(UUID(int=self._made), partition_count)
        self.topics_version += 1

    def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a topic."""
        self.topics[name] = self.topics[name]._replace(partition_count=partition_count)
        self.topics_version += 1

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self.topics[name]
        self.topics_version += 1


class GroupWorld:
    """One leading coordinator, its journal and a clock."""

    def __init__(self, partition_count: int = 1, topics: FakeTopics | None = None, **settings: Any) -> None:
        self.journal = MemoryJournal()
        self.partition_count = partition_count
        self.topics = FakeTopics() if topics is None else topics
        self.config = BrokerConfig(**settings)
        self.now_ms = START_MS
        self.ids = 0
        self.coordinator = self.instance()
        self.lead()

    def instance(self) -> GroupCoordinator:
        """Return another coordinator over the same journal, which leads no partition yet."""
        return GroupCoordinator(
            config=self.config,
            group_settings=lambda _: ConsumerGroupSettings(
                self.config.group_consumer_session_timeout_ms,
                self.config.group_consumer_heartbeat_interval_ms,
                self.config.group_consumer_assignment_interval_ms,
            ),
            own_settings=lambda _: {},
            journal=self.journal,
            partition_count=self.partition_count,
            new_member_id=self._new_member_id,
            topics=self.topics,
        )

    def _new_member_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids}"

    def lead(self) -> None:
        """Make the coordinator the leader of all partitions, each at a new leader epoch."""
        for partition in range(self.partition_count):
            self.coordinator.become_leader(partition, self.journal.lead(partition), self.now_ms)

    def fail_over(self) -> GroupCoordinator:
        """Replace the leader by a new coordinator and return the old one, which does not know yet."""
        old, self.coordinator = self.coordinator, self.instance()
        self.lead()
        return old

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock, with a stop at each deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline_ms = self.coordinator.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.coordinator.advance(self.now_ms)
        self.now_ms = end_ms

    def shard(self, group_id: str = GROUP) -> GroupShard:
        """Return the shard of a group."""
        return self.coordinator._shards[self.coordinator.partition_for(group_id)]

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        """Return a group object of the coordinator."""
        return self.shard(group_id).groups[group_id]

    def join(self, member_id: str = "", **fields: Any) -> Answer[JoinResult]:
        """Send a JoinGroup request with the usual fields."""
        request = {
            "group_id": GROUP,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "requires_known_member_id": False,
            **fields,
        }
        answer: Answer[JoinResult] = Answer()
        self.coordinator.join_group(JoinGroup(member_id=member_id, **request), self.now_ms, answer)
        return answer

    def sync(self, member_id: str, generation_id: int, **fields: Any) -> Answer[SyncResult]:
        """Send a SyncGroup request."""
        answer: Answer[SyncResult] = Answer()
        self.coordinator.sync_group(SyncGroup(GROUP, member_id, generation_id, **fields), self.now_ms, answer)
        return answer

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        """Send a Heartbeat request."""
        return self.coordinator.heartbeat(Heartbeat(GROUP, member_id, generation_id, instance), self.now_ms)

    def leave(self, *members: LeavingMember) -> LeaveResult:
        """Remove members from a group."""
        return self.coordinator.leave_group(LeaveGroup(GROUP, members), self.now_ms)

    def commit(
        self, offset: int = 42, partition: TopicPartition = T0, group_id: str = GROUP, **fields: Any
    ) -> ErrorCode:
        """Commit one offset and return the error code."""
        request = OffsetCommit(group_id, {partition: OffsetToCommit(offset)}, **fields)
        return self.coordinator.commit_offsets(request, self.now_ms)[partition]

    def txn_commit(
        self,
        offset: int = 42,
        partition: TopicPartition = T0,
        group_id: str = GROUP,
        producer: ProducerIdentity = PRODUCER,
        **fields: Any,
    ) -> ErrorCode:
        """Commit one offset in a transaction and return the error code."""
        request = OffsetCommit(group_id, {partition: OffsetToCommit(offset)}, producer=producer, **fields)
        return self.coordinator.commit_offsets(request, self.now_ms)[partition]

    def end(self, *, commit: bool, producer: ProducerIdentity = PRODUCER, partition: int = 0) -> ErrorCode:
        """Write a transaction's end marker."""
        return self.coordinator.complete_transaction(partition, TransactionEnd(producer, commit, 1, 2), self.now_ms)

    def fetch(self, partition: TopicPartition = T0, *, require_stable: bool = False) -> int:
        """Return the committed offset, or the negated error code."""
        result = self.coordinator.fetch_offsets(GROUP, [partition], require_stable=require_stable)
        assert result.error is NONE
        fetched = result.offsets[partition]
        return -fetched.error if fetched.error is not NONE else fetched.offset

    def stable(self, *names: str) -> list[str]:
        """Return a stable group of that many members; the first leads, and each is assigned its own name."""
        answers = [self.join(client_id=name) for name in names]
        members = [next(iter(self.group().members))] if len(names) == 1 else list(self.group().members)
        # All but the last are in an older generation by now and join again.
        answers = [self.join(member) for member in members] if len(names) > 1 else answers
        generation = self.group().generation_id
        self.settle(generation, {member: name.encode() for member, name in zip(members, names, strict=True)})
        return members

    def settle(self, generation: int, assignments: dict[str, bytes]) -> dict[str, SyncResult]:
        """Send the SyncGroup requests of all members, the leader's last."""
        leader = self.group().leader
        order = sorted(assignments, key=lambda member: member == leader)
        answers = {
            member: self.sync(member, generation, assignments=assignments if member == leader else {})
            for member in order
        }
        return {member: answer.now for member, answer in answers.items()}
