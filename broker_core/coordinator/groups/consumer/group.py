"""One consumer group (KIP-848): its records, and the state derived from them.

`replay` is the only way to change a group. Records are first applied to a `ConsumerGroupDraft`, so
that each record of a heartbeat takes the previous ones into account.

Both protocols use static members (KIP-345) in the same way, with one difference: a caller takes the place of an
instance that is still there if one of the two uses the classic protocol, which cannot say that an instance returns.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple, Protocol

from broker_core.coordinator.groups.choices import Choices
from broker_core.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicShard
from broker_core.coordinator.groups.consumer import states as tables
from broker_core.coordinator.groups.consumer.records import (
    CONSUMER_RECORDS,
    Current,
    GroupEpoch,
    Partitions,
    RecordType,
    ResolvedRegex,
    Subscription,
    TopicIdPartition,
)
from broker_core.coordinator.groups.consumer.states import CommitFit, ConsumerGroupState, MemberState
from broker_core.coordinator.groups.modern_records import RecordKey, TargetEpoch
from broker_core.coordinator.journal import JournalRecord
from broker_core.errors import ErrorCode, KafkaError

DEFAULT_ASSIGNOR: Final = "uniform"
NOTHING: Final[Partitions] = frozenset()


class ConsumerMember(NamedTuple):
    """One member: its subscription and its progress."""

    member_id: str
    subscription: Subscription = Subscription()
    current: Current = Current()

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.member_epoch == epoch


class ConsumerGroup:
    """A group's members, the target of each, and the holder of each partition."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = GroupEpoch(0)
        self.target_epoch = TargetEpoch(0)
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.holders: dict[TopicIdPartition, str] = {}
        self.static_members: dict[str, str] = {}
        # What each member reads, topics that its expression matches included, and the expression of each that has one.
        self.topics = Choices[frozenset[str]]()
        self.expressions = Choices[str]()
        self._assignors = Choices[str]()
        # Kafka 4.0 also wrote a record about the topics; it is not needed, but is deleted with the group.
        self.has_topic_metadata = False
        # The version of the topics that the group was last compared with: a cache, not state.
        self.seen_topics_version: int | None = None

    def copy(self) -> "ConsumerGroup":
        other = ConsumerGroup(self.group_id)
        other.epoch, other.target_epoch = self.epoch, self.target_epoch
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.regexes, other.holders = dict(self.regexes), dict(self.holders)
        other.static_members, other.has_topic_metadata = dict(self.static_members), self.has_topic_metadata
        other.topics, other.expressions = self.topics.copy(), self.expressions.copy()
        other._assignors = self._assignors.copy()
        return other

    def replay(self, key: RecordKey[RecordType], value: Any) -> None:
        if key.kind is RecordType.GROUP_EPOCH:
            self.epoch = value or GroupEpoch(0)
        elif key.kind is RecordType.TARGET_EPOCH:
            self.target_epoch = value or TargetEpoch(0)
        elif key.kind is RecordType.MEMBER:
            self._replay_member(key.part, value)
        elif key.kind is RecordType.TARGET:
            put_or_drop(self.targets, key.part, value)
        elif key.kind is RecordType.CURRENT:
            self._replay_current(key.part, value)
        elif key.kind is RecordType.REGULAR_EXPRESSION:
            put_or_drop(self.regexes, key.part, value)
            for member_id, regex in self.expressions.by_member.items():
                if regex == key.part:
                    self._choose(member_id, self.members[member_id].subscription)
        else:
            self.has_topic_metadata = value is not None

    def _replay_member(self, member_id: str, subscription: Subscription | None) -> None:
        before = self.members.get(member_id, ConsumerMember(member_id))
        if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
            del self.static_members[before.instance_id]
        self.expressions.put(member_id, (subscription.regex or None) if subscription else None)
        self._assignors.put(member_id, subscription.server_assignor if subscription else None)
        self._choose(member_id, subscription)
        if subscription is None:
            self._hold(before, Current())
            self.members.pop(member_id, None)
            return
        self.members[member_id] = before._replace(subscription=subscription)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def _choose(self, member_id: str, subscription: Subscription | None) -> None:
        if subscription is None:
            self.topics.put(member_id, None)
            return
        matched = self.regexes.get(subscription.regex)
        self.topics.put(member_id, frozenset(subscription.topics).union(matched.topics if matched else ()))

    def _replay_current(self, member_id: str, current: Current | None) -> None:
        """Set the member's progress; a tombstone for a removed member changes nothing (compaction may leave it)."""
        if current is None and member_id not in self.members:
            return
        before = self.members.get(member_id, ConsumerMember(member_id))
        self._hold(before, current or Current())
        self.members[member_id] = before._replace(current=current or Current())

    def _hold(self, before: ConsumerMember, current: Current) -> None:
        for partition in (*before.current.assigned, *before.current.pending):
            if self.holders.get(partition) == before.member_id:
                del self.holders[partition]
        for partition in (*current.assigned, *current.pending):
            self.holders[partition] = before.member_id

    @property
    def state(self) -> ConsumerGroupState:
        return tables.GROUP_STATE.resolve(
            members=bool(self.members),
            target_is_behind=self.epoch.epoch > self.target_epoch.epoch,
            all_reconciled=all(member.is_reconciled_to(self.target_epoch.epoch) for member in self.members.values()),
        )

    @property
    def assignor(self) -> str:
        """Return the assignor that most members request; in a tie, the first by name."""
        return max(sorted(self._assignors.made), key=self._assignors.count, default=DEFAULT_ASSIGNOR)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def topics_of(self, member_id: str) -> frozenset[str]:
        """Return the topics the member reads, including those its expression matches; none for an unknown member."""
        return self.topics.by_member.get(member_id, frozenset())

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*self.topics.made)

    def reads_as(self, before: "ConsumerGroup") -> bool:
        """Return whether each member reads the same as before; a static one may have another member id now."""
        known = before.topics.by_member
        changed = [
            member_id for member_id, topics in self.topics.by_member.items() if topics is not known.get(member_id)
        ]
        return all(
            self.topics_of(member_id)
            == before.topics_of(before.static_members.get(self.members[member_id].instance_id or "", member_id))
            for member_id in changed
        )

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        known = [
            {name for name, _ in member.subscription.classic.protocols}
            for member in self.members.values()
            if member.subscription.classic is not None
        ]
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(all(name in each for each in known) for name in names)

    def others_keep(self, member: ConsumerMember) -> bool:
        """Return whether another member has yet to give up a partition of this member's target."""
        missing = self.target(member.member_id) - member.current.assigned.keys()
        return any(self.holders.get(partition, member.member_id) != member.member_id for partition in missing)

    def commit_error(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        partitions: Iterable[TopicIdPartition],
        *,
        transactional: bool,
        knows_member_epochs: bool,
    ) -> ErrorCode:
        """Return the error for a commit of these partitions' offsets, NONE if it is allowed."""
        member = self.members.get(member_id)
        return tables.COMMIT.resolve(
            group_is_empty=not self.members,
            caller=tables.caller_of(member_id, group_instance_id, member_epoch),
            is_member=member is not None,
            is_classic=member is not None and member.is_classic,
            fit=_commit_fit(member, member_epoch, partitions),
            transactional=transactional,
            knows_member_epochs=knows_member_epochs,
        )

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error for a fetch of committed offsets, NONE if it is allowed."""
        member = self.members.get(member_id or "")
        return tables.FETCH.resolve(
            names_member=member_id is not None or member_epoch >= 0,
            is_member=member is not None,
            is_classic=member is not None and member.is_classic,
            epoch_is_current=member is not None and member_epoch == member.current.member_epoch,
        )

    def tombstones(self) -> list[JournalRecord]:
        kinds = (RecordType.CURRENT, RecordType.TARGET, RecordType.MEMBER)
        keys = [RecordKey(kind, self.group_id, member_id) for kind in kinds for member_id in self.members]
        keys += [RecordKey(RecordType.REGULAR_EXPRESSION, self.group_id, regex) for regex in self.regexes]
        last = (RecordType.TOPIC_METADATA,) if self.has_topic_metadata else ()
        keys += [RecordKey(kind, self.group_id) for kind in (RecordType.TARGET_EPOCH, *last, RecordType.GROUP_EPOCH)]
        return [CONSUMER_RECORDS.record(key, None) for key in keys]


def put_or_drop(facts: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        facts.pop(name, None)
    else:
        facts[name] = value


def _commit_fit(member: ConsumerMember | None, member_epoch: int, partitions: Iterable[TopicIdPartition]) -> CommitFit:
    if member is None:
        return CommitFit.STALE
    current = member.current
    if member_epoch == current.member_epoch:
        return CommitFit.CURRENT
    held = {**current.pending, **current.assigned}
    was_its_own = 0 <= member_epoch < current.member_epoch and all(
        partition in held and held[partition] <= member_epoch for partition in partitions
    )
    return CommitFit.KEPT if was_its_own else CommitFit.STALE


class ConsumerGroupDraft:
    """The records of one change, and the group with them applied."""

    def __init__(self, group: ConsumerGroup, records: Iterable[JournalRecord] = ()) -> None:
        self.group = group
        self.records = list(records)
        self._is_copy = False

    def put(self, kind: RecordType, value: Any, part: str = "") -> None:
        if not self._is_copy:
            self.group, self._is_copy = self.group.copy(), True
        key = RecordKey(kind, self.group.group_id, part)
        self.group.replay(key, value)
        self.records.append(CONSUMER_RECORDS.record(key, value))

    def remove_member(self, member_id: str) -> None:
        for kind in (RecordType.CURRENT, RecordType.TARGET, RecordType.MEMBER):
            self.put(kind, None, member_id)

    def current_of(self, member_id: str) -> Current:
        return self.group.members[member_id].current


class ConsumerShard(ClassicShard, Protocol):
    """The interface of a partition that consumer group membership uses."""

    consumer_groups: dict[str, ConsumerGroup]

    def group_tombstone(self, group_id: str) -> list[JournalRecord]:
        """Return the tombstone of a classic group that was recorded."""
        ...


def check_recorded(error: ErrorCode, what: str) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, f"{what} could not be recorded.")


def owns_only(owned: Collection[TopicIdPartition] | None, assigned: Collection[TopicIdPartition]) -> bool:
    """Return whether the member reports its partitions, and only partitions assigned to it."""
    return owned is not None and all(partition in assigned for partition in owned)


def check_capacity(group: ConsumerGroup, limit: int, member_id: str, instance_id: str | None) -> None:
    is_known = member_id in group.members or instance_id in group.static_members
    if len(group.members) >= limit and not is_known:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {limit} members."
        )


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the caller's member; raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if there is none."""
    if instance_id is not None:
        return static_member(group, member_id, instance_id)
    if member_id not in group.members:
        raise unknown_member(group.group_id, member_id)
    return group.members[member_id]


def static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member of the instance id, if the caller is its current owner."""
    holder = group.static_members.get(instance_id)
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
        )
    return group.members[holder]


def join_static(draft: ConsumerGroupDraft, instance_id: str, member_id: str, *, is_classic: bool) -> ConsumerMember:
    """Add a static member, which takes over the assignment of its previous incarnation.

    Between two incarnations of the consumer protocol, the previous one must have left temporarily (epoch -2).
    """
    holder = draft.group.static_members.get(instance_id)
    if holder is None:
        return draft.group.members.get(member_id, ConsumerMember(member_id))
    former, target = draft.group.members[holder], draft.group.target(holder)
    may_replace = is_classic or former.is_classic or former.current.member_epoch == tables.STATIC_LEAVE_EPOCH
    if not may_replace:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot "
            f"join the group because the instance id is owned by {holder} member.",
        )
    draft.remove_member(holder)
    draft.put(RecordType.MEMBER, former.subscription, member_id)
    draft.put(RecordType.TARGET, target, member_id)
    draft.put(RecordType.CURRENT, former.current._replace(member_epoch=0, previous_epoch=0), member_id)
    return draft.group.members[member_id]


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
