"""One share group (KIP-932): its records, and the state derived from them.

`replay` is the only way to change a group. Records are first applied to a `ShareGroupDraft`, so that each record of a
heartbeat takes the previous ones into account.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, cast

from broker_core.coordinator.groups.choices import Choices
from broker_core.coordinator.groups.consumer.group import NOTHING, put_or_drop
from broker_core.coordinator.groups.consumer.records import GroupEpoch, Partitions
from broker_core.coordinator.groups.group_types import FeatureShard
from broker_core.coordinator.groups.modern_records import RecordKey, TargetEpoch
from broker_core.coordinator.journal import JournalRecord
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.groups.records import (
    SHARE_RECORDS,
    Current,
    RecordType,
    StatePartitions,
    Subscription,
)

SHARE_GROUP_TYPE: Final = "share"


class ShareGroupState(Enum):
    """The state of a group; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareMember(NamedTuple):
    """One member: its subscription and its assignment."""

    member_id: str
    subscription: Subscription = Subscription()
    current: Current = Current()

    @property
    def assigned(self) -> Partitions:
        return self.current.assigned


@dataclass(eq=False)
class ShareGroup:
    """A group's members, the target of each, and the partitions whose state is kept for it."""

    group_id: str
    epoch: GroupEpoch = field(default_factory=lambda: GroupEpoch(1))
    target_epoch: TargetEpoch = field(default_factory=lambda: TargetEpoch(0))
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    state_partitions: StatePartitions = field(default_factory=StatePartitions)
    # Whether there is a record of them, even of none.
    has_state: bool = False
    # The version of the topics that the group was last compared with: a cache, not state.
    seen_topics_version: int | None = None
    _topics: Choices[tuple[str, ...]] = field(default_factory=Choices)

    def copy(self) -> "ShareGroup":
        members, targets, topics = dict(self.members), dict(self.targets), self._topics.copy()
        return replace(self, members=members, targets=targets, _topics=topics, seen_topics_version=None)

    def replay(self, key: RecordKey[RecordType], value: Any) -> None:
        if key.kind is RecordType.GROUP_EPOCH:
            self.epoch = value or GroupEpoch(1)
        elif key.kind is RecordType.TARGET_EPOCH:
            self.target_epoch = value or TargetEpoch(0)
        elif key.kind is RecordType.STATE_PARTITIONS:
            self.state_partitions, self.has_state = value or StatePartitions(), value is not None
        elif key.kind is RecordType.TARGET:
            put_or_drop(self.targets, key.part, value)
        else:
            self._replay_member(key, value)

    def _replay_member(self, key: RecordKey[RecordType], value: Any) -> None:
        before = self.members.get(key.part)
        if key.kind is RecordType.MEMBER:
            self._topics.put(key.part, value and value.topics)
        if value is None:
            if key.kind is RecordType.MEMBER:
                self.members.pop(key.part, None)
            elif before is not None:
                self.members[key.part] = before._replace(current=Current())
            return
        before = before or ShareMember(key.part)
        self.members[key.part] = (
            before._replace(subscription=value) if key.kind is RecordType.MEMBER else before._replace(current=value)
        )

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*self._topics.made)

    def tombstones(self) -> list[JournalRecord]:
        kinds = (RecordType.TARGET_EPOCH, RecordType.STATE_PARTITIONS, RecordType.GROUP_EPOCH)
        return [SHARE_RECORDS.record(RecordKey(kind, self.group_id), None) for kind in kinds]


class ShareGroupDraft:
    """The records of one change, and the group with them applied."""

    def __init__(self, group: ShareGroup) -> None:
        self.group = group.copy()
        self.records: list[JournalRecord] = []

    def put(self, kind: RecordType, value: Any, member_id: str = "") -> None:
        key = RecordKey(kind, self.group.group_id, member_id)
        self.group.replay(key, value)
        self.records.append(SHARE_RECORDS.record(key, value))


def share_groups_in(shard: FeatureShard) -> dict[str, ShareGroup]:
    return cast(dict[str, ShareGroup], shard.of_features[SHARE_GROUP_TYPE])


def find(shard: FeatureShard, group_id: str) -> ShareGroup:
    """Return the share group; raise GROUP_ID_NOT_FOUND, with Kafka's message, if there is none."""
    group = share_groups_in(shard).get(group_id)
    if group is None:
        is_other = group_id in shard.groups or group_id in shard.consumer_groups
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {'is not a share group' if is_other else 'not found'}."
        )
    return group


def find_or_create(shard: FeatureShard, group_id: str, *, create: bool) -> ShareGroup:
    """Return the share group, a new one if it may be created and no group of another type has the id."""
    group = share_groups_in(shard).get(group_id)
    if group is not None:
        return group
    if group_id in shard.groups or group_id in shard.consumer_groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if not create:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return ShareGroup(group_id)
