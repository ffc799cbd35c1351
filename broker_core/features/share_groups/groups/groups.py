"""The share groups (KIP-932) that one group coordinator coordinates: members join, get partitions, and leave.

A heartbeat, a leave and an expired session each result in records here; a group changes only when the shard replays
the records. A partition is assigned once the share coordinator keeps its state, so a member that joins with a new
topic gets its partitions with a later heartbeat.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, cast
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.consumer.assignors import Reader, Readers
from broker_core.coordinator.groups.consumer.group import unknown_member
from broker_core.coordinator.groups.consumer.records import GroupEpoch, Partitions, TopicIdPartition
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings, GroupDescription
from broker_core.coordinator.groups.consumer.subscriptions import Topics, metadata_hash
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.groups.group_types import FeatureShard, FindShard, OwnSettings
from broker_core.coordinator.groups.modern_records import TargetEpoch
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.groups.group import (
    SHARE_GROUP_TYPE,
    ShareGroup,
    ShareGroupDraft,
    ShareMember,
    find,
    find_or_create,
    share_groups_in,
)
from broker_core.features.share_groups.groups.offsets import ShareOffsets, begin_initialization
from broker_core.features.share_groups.groups.records import Current, RecordType
from broker_core.features.share_groups.groups.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Deletion,
    ShareHeartbeat,
    ShareHeartbeatResult,
    check_heartbeat,
)
from broker_core.features.share_groups.states.state import standard_error

_ASSIGNOR_NAME: Final = "simple"


@dataclass(eq=False)
class ShareGroups:
    """The share groups of every partition of `__consumer_offsets` that a broker leads.

    `find_shard` returns the partition of a group, or the error if it is not led here. `offsets` has the requests of
    administrators, which raise `KafkaError`.
    """

    _config: BrokerConfig
    _own_settings: OwnSettings
    _timers: Timers
    _topics: Topics
    _find_shard: FindShard
    offsets: ShareOffsets = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = ShareOffsets(self._topics, self._shard)

    def heartbeat(self, request: ShareHeartbeat, now_ms: int) -> ShareHeartbeatResult:
        try:
            check_heartbeat(request)
            shard = self._shard(request.group_id)
            if request.member_epoch == LEAVE_EPOCH:
                return self._leave(shard, request, now_ms)
            return self._stay(shard, request, now_ms)
        except KafkaError as refusal:
            return ShareHeartbeatResult(refusal.code, refusal.message)

    def describe(self, group_id: str) -> GroupDescription[ShareMember]:
        error, shard = self._find_shard(group_id)
        if shard is None:
            return GroupDescription(group_id, error)
        try:
            group = find(shard, group_id)
        except KafkaError as refusal:
            return GroupDescription(group_id, refusal.code, refusal.message)
        return GroupDescription(
            group_id,
            state=group.state.value,
            epoch=group.epoch.epoch,
            target_epoch=group.target_epoch.epoch,
            assignor=_ASSIGNOR_NAME,
            members=tuple(group.members.values()),
        )

    def begin_deletion_of_group(self, group_id: str, now_ms: int) -> Deletion | None:
        """Begin to delete a share group; None if no share group has this id."""
        error, shard = self._find_shard(group_id) if group_id else (ErrorCode.NONE, None)
        if shard is None or error or group_id not in share_groups_in(shard):
            return None
        return self.offsets.begin_deletion_of_group(shard, group_id, now_ms)

    def forget_topics(self, shards: Iterable[FeatureShard], topic_ids: Collection[UUID], now_ms: int) -> None:
        for shard in shards:
            self.offsets.forget_topics(shard, topic_ids, now_ms)

    def resume(self, shard: FeatureShard, now_ms: int) -> None:
        for group in share_groups_in(shard).values():
            for member_id in group.members:
                self._start_session(group.group_id, member_id, now_ms)

    def abandon(self, shard: FeatureShard) -> None:
        for group in share_groups_in(shard).values():
            for member_id in group.members:
                self._timers.cancel(_session_timer(group.group_id, member_id))

    def deadline_passed(self, shard: FeatureShard, group_id: str, member_id: str, now_ms: int) -> None:
        group = share_groups_in(shard).get(group_id)
        if group is not None:
            self._take_out(shard, group, member_id, now_ms)

    def remove_members(self, group_id: str, now_ms: int) -> None:
        for member in self.describe(group_id).members:
            self.heartbeat(ShareHeartbeat(group_id, member.member_id, LEAVE_EPOCH), now_ms)

    def _shard(self, group_id: str) -> FeatureShard:
        error, shard = self._find_shard(group_id)
        if shard is None:
            raise standard_error(error)
        return shard

    def _settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return ConsumerGroupSettings.of("share", self._own_settings(group_id), self._config)

    def _stay(self, shard: FeatureShard, request: ShareHeartbeat, now_ms: int) -> ShareHeartbeatResult:
        group = find_or_create(shard, request.group_id, create=request.member_epoch == JOIN_EPOCH)
        before = self._member(group, request)
        draft = ShareGroupDraft(group)
        subscription = request.updated(before.subscription)
        if request.member_id not in group.members or subscription != before.subscription:
            draft.put(RecordType.MEMBER, subscription, request.member_id)
        is_raised = self._follow_topics(group, draft, subscription.topics != before.subscription.topics)
        self._assign(draft, now_ms)
        current = draft.group.members[request.member_id].current
        after = self._reached(draft.group, request.member_id, current, is_raised)
        if after != current:
            draft.put(RecordType.CURRENT, after, request.member_id)
        initialization = begin_initialization(draft, draft.group.subscribed_topics(), self._topics)
        error = shard.record(draft.records, now_ms)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The heartbeat's outcome could not be recorded.")
        share_groups_in(shard)[request.group_id].seen_topics_version = self._topics.topics_version
        self._start_session(request.group_id, request.member_id, now_ms)
        is_told = (
            request.member_epoch == JOIN_EPOCH
            or request.topics is not None
            or after.assigned != before.current.assigned
        )
        return ShareHeartbeatResult(
            member_id=request.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self._settings_of(request.group_id).heartbeat_interval_ms,
            assigned=after.assigned if is_told else None,
            initialization=initialization,
        )

    def _member(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember:
        """Return the member as it was before this heartbeat; fence a caller with another epoch."""
        limit = self._config.group_share_max_size
        if len(group.members) >= limit and request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )
        member = group.members.get(request.member_id)
        received = request.member_epoch
        if member is None:
            if received != JOIN_EPOCH:
                raise unknown_member(request.group_id, request.member_id)
            return ShareMember(request.member_id)
        known, previous = member.current.member_epoch, member.current.previous_epoch
        if received != JOIN_EPOCH and received > known:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({received}) than the one known by the group "
                f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
            )
        # The previous epoch belongs to a member whose last response was lost.
        if received != JOIN_EPOCH and received < known and received != previous:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch ({received}) than the one known by the group "
                f"coordinator ({known}), and it does not match the previous member epoch ({previous}). The member "
                "must abandon all its partitions and rejoin.",
            )
        return member

    def _follow_topics(self, group: ShareGroup, draft: ShareGroupDraft, subscription_changed: bool) -> bool:
        """Increment the group epoch if its members read other topics or other partitions of them than before."""
        is_raised = subscription_changed
        if group.target_epoch.epoch >= group.epoch.epoch:
            is_raised = is_raised or _has_unassigned_state(group)
        if not is_raised and group.seen_topics_version == self._topics.topics_version:
            return False
        sum_of_topics = metadata_hash(draft.group.subscribed_topics(), self._topics)
        is_raised = is_raised or sum_of_topics != group.epoch.metadata_hash
        if is_raised:
            draft.put(RecordType.GROUP_EPOCH, GroupEpoch(group.epoch.epoch + 1, sum_of_topics))
        return is_raised

    def _assign(self, draft: ShareGroupDraft, now_ms: int) -> None:
        """Compute a target for the group epoch, unless the last one is too recent."""
        group = draft.group
        interval_ms = self._settings_of(group.group_id).assignment_interval_ms
        if group.epoch.epoch <= group.target_epoch.epoch or (
            group.target_epoch.timestamp_ms and now_ms < group.target_epoch.timestamp_ms + interval_ms
        ):
            return
        assignable = {
            TopicIdPartition(topic_id, partition)
            for topic_id, named in group.state_partitions.initialized.items()
            for partition in named.partitions
        }
        readers = {
            member_id: Reader(member_id, None, self._topic_ids(member), group.target(member_id))
            for member_id, member in group.members.items()
        }
        for member_id, share in _assign(readers, assignable).items():
            if share != group.target(member_id) or member_id not in group.targets:
                draft.put(RecordType.TARGET, share, member_id)
        draft.put(RecordType.TARGET_EPOCH, TargetEpoch(group.epoch.epoch, now_ms))

    def _reached(self, group: ShareGroup, member_id: str, current: Current, is_raised: bool) -> Current:
        """Return the member's assignment after this heartbeat: its target at once, since partitions are shared."""
        target_epoch = group.target_epoch.epoch
        if current.member_epoch == target_epoch and not is_raised:
            return current
        readable = self._topic_ids(group.members[member_id])
        assigned: Partitions = frozenset(
            partition for partition in group.target(member_id) if partition.topic_id in readable
        )
        if current.member_epoch == target_epoch:
            return current._replace(assigned=assigned)
        return Current(target_epoch, current.member_epoch, assigned)

    def _topic_ids(self, member: ShareMember) -> frozenset[UUID]:
        found = (self._topics.topics.get(name) for name in member.subscription.topics)
        return frozenset(facts.topic_id for facts in found if facts is not None)

    def _leave(self, shard: FeatureShard, request: ShareHeartbeat, now_ms: int) -> ShareHeartbeatResult:
        group = find(shard, request.group_id)
        if request.member_id not in group.members:
            raise unknown_member(request.group_id, request.member_id)
        error = self._take_out(shard, group, request.member_id, now_ms)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The departure could not be recorded.")
        return ShareHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)

    def _take_out(self, shard: FeatureShard, group: ShareGroup, member_id: str, now_ms: int) -> ErrorCode:
        """Remove a member and increment the group epoch, so that the others get its partitions."""
        draft = ShareGroupDraft(group)
        for kind in (RecordType.CURRENT, RecordType.TARGET, RecordType.MEMBER):
            draft.put(kind, None, member_id)
        epoch = group.epoch.epoch + 1
        sum_of_topics = metadata_hash(draft.group.subscribed_topics(), self._topics)
        draft.put(RecordType.GROUP_EPOCH, GroupEpoch(epoch, sum_of_topics))
        if not draft.group.members:
            draft.put(RecordType.TARGET_EPOCH, TargetEpoch(epoch))
        error = shard.record(draft.records, now_ms)
        if error is ErrorCode.NONE:
            self._timers.cancel(_session_timer(group.group_id, member_id))
        else:
            # Try again after another session: the partitions of a member that is gone belong to the others.
            self._start_session(group.group_id, member_id, now_ms)
        return error

    def _start_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._settings_of(group_id).session_timeout_ms
        self._timers.schedule(_session_timer(group_id, member_id), now_ms + timeout_ms)


def _has_unassigned_state(group: ShareGroup) -> bool:
    """Return whether state is kept of partitions that are not assigned, of topics that are read."""
    if not group.members:
        return False
    names, targets = group.subscribed_topics(), frozenset().union(*group.targets.values())
    for topic_id, named in group.state_partitions.initialized.items():
        assigned = {partition.partition for partition in targets if partition.topic_id == topic_id}
        if named.name in names and assigned != named.partitions:
            return True
    return False


def _assign(readers: Readers, assignable: Collection[TopicIdPartition]) -> dict[str, Partitions]:
    """Return the target of each reader; only assignable partitions are given out.

    This is Kafka's assignor `simple`. With more members than partitions several members share a partition; with fewer,
    each has several. An assignment changes as little as possible.
    """
    found: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in readers}
    ordered = sorted(readers)
    topics = frozenset().union(*(reader.topics for reader in readers.values()))
    if all(reader.topics == topics for reader in readers.values()):
        groups = [topics]
    else:
        # Each topic is balanced among its own readers.
        groups = [frozenset({topic}) for topic in sorted(topics)]
    for group in groups:
        partitions = sorted(partition for partition in assignable if partition.topic_id in group)
        members = [member_id for member_id in ordered if group <= readers[member_id].topics]
        for member_id, share in _balance(partitions, members, readers).items():
            found[member_id] |= share
    return {member_id: frozenset(share) for member_id, share in found.items()}


def _balance(
    partitions: Sequence[TopicIdPartition], members: Sequence[str], readers: Readers
) -> dict[str, set[TopicIdPartition]]:
    sharing = ceil(len(members) / len(partitions)) if partitions else 0
    precise = sharing * len(partitions) / max(len(members), 1)
    wanted = {member_id: ceil(precise * (index + 1)) - ceil(precise * index) for index, member_id in enumerate(members)}
    held: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    holders: dict[TopicIdPartition, set[str]] = {partition: set() for partition in partitions}
    for member_id in members:
        for partition in sorted(readers[member_id].had & holders.keys()):
            if len(held[member_id]) < wanted[member_id] and len(holders[partition]) < sharing:
                held[member_id].add(partition)
                holders[partition].add(member_id)
    unfilled = [member_id for member_id in members if len(held[member_id]) < wanted[member_id]]
    position = 0
    for partition in partitions:
        tries = len(unfilled)
        while len(holders[partition]) < sharing and tries:
            position %= len(unfilled)
            member_id = unfilled[position]
            if member_id in holders[partition]:
                position, tries = position + 1, tries - 1
                continue
            held[member_id].add(partition)
            holders[partition].add(member_id)
            if len(held[member_id]) < wanted[member_id]:
                position += 1
            else:
                unfilled.pop(position)
            tries = len(unfilled)
    return held


def _session_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.FEATURE, group_id, member_id)


def share_groups(coordinator: GroupCoordinator) -> ShareGroups:
    return cast(ShareGroups, coordinator.of_features[SHARE_GROUP_TYPE])
