"""The share groups (KIP-932) that one group coordinator coordinates: one method for each request."""

from collections.abc import Collection, Iterable, Mapping
from typing import cast
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.coordinator import GroupCoordinator
from broker_core.coordinator.groups.group_types import FeatureShard, FindShard, OwnSettings
from broker_core.coordinator.timers import Timers
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.features.share_groups.groups.group import SHARE_GROUP_TYPE, share_groups_in
from broker_core.features.share_groups.groups.membership import ShareMembership, find
from broker_core.features.share_groups.groups.offsets import OffsetDeletion, ShareOffsets
from broker_core.features.share_groups.groups.requests import (
    LEAVE_EPOCH,
    Deletion,
    Initialization,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
    check_heartbeat,
    settings_of,
)


class ShareGroups:
    """The share groups of every partition of `__consumer_offsets` that a broker leads.

    `find_shard` returns the partition of a group, or the error if it is not led here. Requests of administrators raise
    `KafkaError`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        own_settings: OwnSettings,
        timers: Timers,
        topics: Topics,
        find_shard: FindShard,
    ) -> None:
        self._membership = ShareMembership(
            lambda group_id: settings_of(own_settings(group_id), config), config, timers, topics
        )
        self._offsets = ShareOffsets(topics)
        self._find_shard = find_shard

    def heartbeat(self, request: ShareHeartbeat, now_ms: int) -> ShareHeartbeatResult:
        """Handle a heartbeat: a member joins, stays or leaves."""
        try:
            check_heartbeat(request)
        except KafkaError as refusal:
            return ShareHeartbeatResult(refusal.code, refusal.message)
        error, shard = self._find_shard(request.group_id)
        if shard is None:
            return ShareHeartbeatResult(error, STANDARD_MESSAGES.get(error))
        return self._membership.heartbeat(shard, request, now_ms)

    def describe(self, group_id: str) -> ShareGroupDescription:
        """Describe one group."""
        error, shard = self._find_shard(group_id)
        if shard is None:
            return ShareGroupDescription(group_id, error)
        try:
            return self._membership.describe(find(shard, group_id))
        except KafkaError as refusal:
            return ShareGroupDescription(group_id, refusal.code, refusal.message)

    def initialized_partitions(self, group_id: str) -> Mapping[UUID, frozenset[int]]:
        """Return the partitions whose state is kept for a group; none for a group that does not exist."""
        group = share_groups_in(self._shard(group_id)).get(group_id)
        if group is None:
            return {}
        return {topic_id: named.partitions for topic_id, named in group.state_partitions.initialized.items()}

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicIdPartition, int], now_ms: int) -> Initialization:
        """Begin to set start offsets of a group without members."""
        return self._offsets.alter(self._shard(group_id), group_id, offsets, now_ms)

    def begin_deletion_of_offsets(self, group_id: str, names: Collection[str], now_ms: int) -> OffsetDeletion:
        """Begin to delete the offsets of topics of a group without members."""
        return self._offsets.begin_deletion_of_offsets(self._shard(group_id), group_id, names, now_ms)

    def begin_deletion_of_group(self, group_id: str, now_ms: int) -> Deletion | None:
        """Begin to delete a share group; None if no share group has this id."""
        error, shard = self._find_shard(group_id) if group_id else (ErrorCode.NONE, None)
        if shard is None or error or group_id not in share_groups_in(shard):
            return None
        return self._offsets.begin_deletion_of_group(shard, group_id, now_ms)

    def initialized(self, group_id: str, done: Partitions, now_ms: int) -> None:
        """Record that the share coordinator keeps the states of these partitions."""
        self._offsets.initialized(self._shard(group_id), group_id, done, now_ms)

    def not_initialized(self, group_id: str, failed: Partitions, now_ms: int) -> None:
        """Record that the share coordinator could not initialize these partitions."""
        self._offsets.not_initialized(self._shard(group_id), group_id, failed, now_ms)

    def deleted(self, group_id: str, topic_ids: Collection[UUID], now_ms: int) -> None:
        """Record that the states of these topics are deleted."""
        self._offsets.deleted(self._shard(group_id), group_id, topic_ids, now_ms)

    def forget_topics(self, shards: Iterable[FeatureShard], topic_ids: Collection[UUID], now_ms: int) -> None:
        """Forget topics that are being deleted."""
        for shard in shards:
            self._offsets.forget_topics(shard, topic_ids, now_ms)

    def resume(self, shard: FeatureShard, now_ms: int) -> None:
        """Start the sessions of the members of a partition that was just loaded."""
        for group in share_groups_in(shard).values():
            self._membership.resume(group, now_ms)

    def abandon(self, shard: FeatureShard) -> None:
        """Cancel the deadlines of a partition that is coordinated elsewhere."""
        for group in share_groups_in(shard).values():
            self._membership.abandon(group)

    def deadline_passed(self, shard: FeatureShard, group_id: str, member_id: str, now_ms: int) -> None:
        """Remove a member whose session has expired."""
        group = share_groups_in(shard).get(group_id)
        if group is not None:
            self._membership.session_passed(shard, group, member_id, now_ms)

    def remove_members(self, group_id: str, now_ms: int) -> None:
        """Let all members of a group leave."""
        for member in self.describe(group_id).members:
            self.heartbeat(ShareHeartbeat(group_id, member.member_id, LEAVE_EPOCH), now_ms)

    def _shard(self, group_id: str) -> FeatureShard:
        error, shard = self._find_shard(group_id)
        if shard is None:
            raise KafkaError(error, STANDARD_MESSAGES.get(error, ""))
        return shard


def share_groups(coordinator: GroupCoordinator) -> ShareGroups:
    """Return what handles the share groups of a coordinator."""
    return cast(ShareGroups, coordinator.of_features[SHARE_GROUP_TYPE])
