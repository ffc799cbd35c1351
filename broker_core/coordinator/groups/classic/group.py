"""One classic group: its members, its leader and its protocol.

All of it is in memory. Only the record of the last completed generation survives the coordinator;
`ClassicGroup.restored` creates a group from it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from broker_core.coordinator.groups.classic.records import GroupMetadata, RecordedMember
from broker_core.coordinator.groups.classic.requests import GroupDescription, JoinedMember, JoinResult, SyncResult
from broker_core.coordinator.groups.classic.states import TRANSITIONS, GroupState
from broker_core.coordinator.journal import Recorder
from broker_core.coordinator.record_fields import FieldReader
from broker_core.errors import DamageError, ErrorCode
from broker_core.types import NO_TIMESTAMP

JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]
Protocols = tuple[tuple[str, bytes], ...]

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """One member; `join_reply` and `sync_reply` are set while it waits for an answer.

    `is_new` is true until its first generation is complete: it does not know its id yet and cannot heartbeat.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        return dict(self.protocols).get(protocol_name or "", b"")

    def recorded(self, subscription: bytes, assignment: bytes) -> RecordedMember:
        return RecordedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            subscription,
            assignment,
        )


def common_protocols(members: Iterable[Member]) -> list[str]:
    """Return the protocols that all members support, in the first member's order of preference."""
    known = [[name for name, _ in member.protocols] for member in members]
    return [name for name in known[0] if all(name in names for names in known)] if known else []


def elect_protocol(members: Iterable[Member]) -> str:
    """Return the common protocol that most members prefer; in a tie, the first voter decides."""
    voters = list(members)
    candidates = set(common_protocols(voters))
    votes = Counter(next(name for name, _ in voter.protocols if name in candidates) for voter in voters)
    return max(votes, key=lambda name: votes[name])


class ClassicGroup:
    """One group's members and state; `Rebalance` and `ClassicMembership` change it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        # The rest of the initial rebalance delay; None outside a group's first rebalance.
        self.initial_budget_ms: int | None = None
        self.member_added = False
        # The topics of this generation's subscriptions; None if one of them could not be parsed.
        self.topics: frozenset[str] | None = None

    @classmethod
    def restored(cls, group_id: str, metadata: GroupMetadata) -> Self:
        """Return the group as it was when its last generation was recorded."""
        group = cls(group_id)
        for recorded in metadata.members:
            # What comes before the subscription and the assignment is the same in both.
            protocols = ((metadata.protocol_name or "", recorded.subscription),)
            group.add(Member(*recorded[:-2], protocols, recorded.assignment), metadata.protocol_type)
        group.state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        group.state_since_ms = metadata.state_since_ms
        group.generation_id = metadata.generation_id
        group.protocol_type = metadata.protocol_type or None
        group.protocol_name = metadata.protocol_name
        group.leader = metadata.leader
        group.learn_topics()
        return group

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert (self.state, state) in TRANSITIONS, f"group {self.group_id}: {self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    @property
    def is_consumer_group(self) -> bool:
        """Return whether the members are consumers, so that their subscriptions can be parsed."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> list[Member]:
        return [member for member in self.members.values() if member.join_reply]

    @property
    def has_all_joined(self) -> bool:
        """Return whether all members have joined, including clients that were given a new member id to rejoin with."""
        return not self.pending_joins and all(member.join_reply for member in self.members.values())

    def subscribes_to(self, topic: str) -> bool:
        """Return whether the group subscribes to the topic; True if a consumer's subscription cannot be parsed."""
        return self.is_consumer_group if self.topics is None else topic in self.topics

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that the caller is a member, and the current owner of its instance id (KIP-345)."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def caller_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        error = self.member_error(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        return protocol_type == self.protocol_type and any(
            all(name in names for names in known) for name, _ in protocols
        )

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the oldest member becomes the leader."""
        del self.members[member.member_id]
        self.pending_syncs.discard(member.member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old: Member, new: Member) -> None:
        """Replace a static member by its new incarnation, leadership included."""
        members = [new if member is old else member for member in self.members.values()]
        self.members = {member.member_id: member for member in members}
        self.pending_syncs.discard(old.member_id)
        if new.group_instance_id is not None:
            self.static_members[new.group_instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined; return False if no member has."""
        joined = self.awaiting_join
        if joined and not any(member.member_id == self.leader for member in joined):
            self.leader = joined[0].member_id
        return bool(joined)

    def start_generation(self, now_ms: int) -> None:
        """Increment the generation and elect its protocol; a group without members becomes empty."""
        self.generation_id = 1 if self.generation_id == 2**31 - 1 else self.generation_id + 1
        if self.members:
            self.protocol_name = elect_protocol(self.members.values())
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms)
        self.learn_topics()

    def learn_topics(self) -> None:
        if not self.members:
            self.topics = frozenset() if self.protocol_type else None
        elif self.protocol_name is not None and self.is_consumer_group:
            self.topics = subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())
        else:
            self.topics = None

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return the members with their metadata, which the leader needs for the assignment."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def describe(self) -> GroupDescription:
        is_stable = self.state is GroupState.STABLE
        return GroupDescription(
            ErrorCode.NONE,
            self.group_id,
            self.state,
            self.protocol_type or "",
            (self.protocol_name or "") if is_stable else "",
            tuple(
                member.recorded(member.metadata(self.protocol_name), member.assignment)
                if is_stable
                else member.recorded(b"", b"")
                for member in self.members.values()
            ),
        )

    def record(self, now_ms: int, assignments: Mapping[str, bytes]) -> GroupMetadata:
        members = tuple(
            member.recorded(member.metadata(self.protocol_name), assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        return GroupMetadata(
            self.protocol_type or "", self.generation_id, self.protocol_name, self.leader, now_ms, members
        )

    def record_with_replaced(self, old: Member, new: Member) -> GroupMetadata:
        assignments = {member.member_id: member.assignment for member in self.members.values()}
        current = self.record(self.state_since_ms, assignments)
        members = tuple(
            new.recorded(new.metadata(self.protocol_name), new.assignment) if each.member_id == old.member_id else each
            for each in current.members
        )
        leader = new.member_id if self.leader == old.member_id else self.leader
        return current._replace(members=members, leader=leader)


class ClassicShard(Recorder, Protocol):
    """The interface of a partition that classic membership uses."""

    groups: dict[str, ClassicGroup]

    def ensure_group(self, group_id: str) -> ClassicGroup: ...


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions, or None if one of them cannot be parsed.

    None counts as a subscription to all topics: a client with its own format must not lose offsets.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            fields = FieldReader(subscription)
            fields.int16()
            topics.update(fields.string() for _ in range(fields.length()))
    except DamageError:
        return None
    return frozenset(topics)
