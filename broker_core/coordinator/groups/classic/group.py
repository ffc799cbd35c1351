"""One classic group: its members, which of them leads, and what they agree on.

All of it lives in memory; what survives the coordinator is the record of the last completed generation, and
`ClassicGroup.restored` makes a group of that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from broker_core.coordinator.groups.classic.records import GroupMetadata, RecordedMember
from broker_core.coordinator.groups.classic.requests import (
    DescribedMember,
    GroupDescription,
    JoinedMember,
    JoinResult,
    SyncResult,
)
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

    `is_new` lasts until its first generation is complete: it does not know its id yet and cannot heartbeat.
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
        """Return what the member brought for that protocol, empty if it does not know it."""
        return dict(self.protocols).get(protocol_name or "", b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of the member's protocols that is a candidate."""
        allowed = set(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


def common_protocols(members: Iterable[Member]) -> list[str]:
    """Return the protocols that all members know, in the order of the first one's preference."""
    known = [[name for name, _ in member.protocols] for member in members]
    return [name for name in known[0] if all(name in names for names in known)] if known else []


def elect_protocol(members: Iterable[Member]) -> str:
    """Return the common protocol that most members prefer; the first voter's among equals."""
    voters = list(members)
    candidates = common_protocols(voters)
    votes = Counter(member.vote(candidates) for member in voters)
    return max(votes, key=lambda name: votes[name])


class ClassicGroup:
    """One group's members and state; `Rebalance` and `ClassicMembership` decide what happens to it."""

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
        # What is left of the initial delay's budget; None outside a group's first rebalance.
        self.initial_budget_ms: int | None = None
        self.member_added = False
        self._topics: frozenset[str] | None = None

    @classmethod
    def restored(cls, group_id: str, metadata: GroupMetadata) -> Self:
        """Make the group as it was when its last generation was recorded."""
        group = cls(group_id)
        for recorded in metadata.members:
            protocols = ((metadata.protocol_name or "", recorded.subscription),)
            group.add(
                Member(
                    recorded.member_id,
                    recorded.group_instance_id,
                    recorded.client_id,
                    recorded.client_host,
                    recorded.rebalance_timeout_ms,
                    recorded.session_timeout_ms,
                    protocols,
                    recorded.assignment,
                ),
                metadata.protocol_type,
            )
        group.state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        group.state_since_ms = metadata.state_since_ms
        group.generation_id = metadata.generation_id
        group.protocol_type = metadata.protocol_type or None
        group.protocol_name = metadata.protocol_name
        group.leader = metadata.leader
        group.learn_topics()
        return group

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state that the table allows from here."""
        assert (self.state, state) in TRANSITIONS, f"group {self.group_id}: {self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    @property
    def is_unused(self) -> bool:
        """Say whether there are no members, and no client was just sent away to come back with a member id."""
        return self.state is GroupState.EMPTY and not self.pending_joins

    @property
    def is_consumer_group(self) -> bool:
        """Say whether the members are consumers, whose subscriptions the coordinator can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return how long the slowest member may take to join."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join(self) -> list[Member]:
        """Return the members whose join is parked."""
        return [member for member in self.members.values() if member.join_reply]

    @property
    def has_all_joined(self) -> bool:
        """Say whether all have joined, clients included that were sent away to come back with their new id."""
        return not self.pending_joins and all(member.join_reply for member in self.members.values())

    def subscribes_to(self, topic: str) -> bool:
        """Say whether the group reads the topic, as far as the subscription can be read."""
        return self.is_consumer_group if self._topics is None else topic in self._topics

    @property
    def topics_known(self) -> bool:
        """Say whether the members' subscriptions could be read."""
        return self._topics is not None

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that the caller is a member, and the present holder of its instance id (KIP-345)."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def caller_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Check member, instance and generation, in that order."""
        error = self.member_error(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Say whether a joiner with these protocols fits to the members there are."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        return protocol_type == self.protocol_type and any(
            all(name in names for names in known) for name, _ in protocols
        )

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in; the first one makes the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member: Member) -> None:
        """Let a member go; if it led, the one longest here leads."""
        del self.members[member.member_id]
        self.pending_syncs.discard(member.member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old: Member, new: Member) -> None:
        """Put a returned instance in the place of its former self, leadership included."""
        members = [new if member is old else member for member in self.members.values()]
        self.members = {member.member_id: member for member in members}
        self.pending_syncs.discard(old.member_id)
        if new.group_instance_id is not None:
            self.static_members[new.group_instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def elect_joined_leader(self) -> bool:
        """Make sure a member that has joined leads; False when none has joined."""
        joined = self.awaiting_join
        if joined and not any(member.member_id == self.leader for member in joined):
            self.leader = joined[0].member_id
        return bool(joined)

    def start_generation(self, now_ms: int) -> None:
        """Count the generation up and elect its protocol; without members the group is empty."""
        self.generation_id = 1 if self.generation_id == 2**31 - 1 else self.generation_id + 1
        if self.members:
            self.protocol_name = elect_protocol(self.members.values())
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms)
        self.learn_topics()

    def learn_topics(self) -> None:
        """Read which topics the members of this generation subscribe to."""
        if not self.members:
            self._topics = frozenset() if self.protocol_type else None
        elif self.protocol_name is not None and self.is_consumer_group:
            self._topics = subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())
        else:
            self._topics = None

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return what the leader needs to assign."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def describe(self) -> GroupDescription:
        """Describe the group to an administrator."""
        is_stable = self.state is GroupState.STABLE
        return GroupDescription(
            ErrorCode.NONE,
            self.group_id,
            self.state,
            self.protocol_type or "",
            (self.protocol_name or "") if is_stable else "",
            tuple(
                DescribedMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.members.values()
            ),
        )

    def record(self, now_ms: int, assignments: Mapping[str, bytes]) -> GroupMetadata:
        """Describe this generation with the given assignments for the journal."""
        members = tuple(
            recorded_member(member, self.protocol_name, assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        return GroupMetadata(
            self.protocol_type or "", self.generation_id, self.protocol_name, self.leader, now_ms, members
        )

    def record_with_replaced(self, old: Member, new: Member) -> GroupMetadata:
        """Describe this generation as it will be once `new` has taken the place of `old`."""
        assignments = {member.member_id: member.assignment for member in self.members.values()}
        current = self.record(self.state_since_ms, assignments)
        members = tuple(
            recorded_member(new, self.protocol_name, new.assignment) if member.member_id == old.member_id else member
            for member in current.members
        )
        leader = new.member_id if self.leader == old.member_id else self.leader
        return current._replace(members=members, leader=leader)


class ClassicShard(Recorder, Protocol):
    """What the membership of classic groups needs of the partition that holds them."""

    @property
    def groups(self) -> Mapping[str, ClassicGroup]:
        """Return the classic groups by id."""
        ...

    def ensure_group(self, group_id: str) -> ClassicGroup:
        """Return the classic group, made now if it is not there."""
        ...


def recorded_member(member: Member, protocol_name: str | None, assignment: bytes) -> RecordedMember:
    """Describe one member for the journal."""
    return RecordedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.metadata(protocol_name),
        assignment,
    )


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions together, or None if one of them cannot be read.

    None counts as subscribed to everything: a client with a format of its own must not lose offsets.
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
