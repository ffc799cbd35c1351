"""Commits, fetches, deletions and the expiration of offsets.

OffsetCommit and TxnOffsetCommit go through their checks in order (rules E.1). A transaction is not verified here; the
broker has done so before. Offsets expire after their retention (KIP-211), but not while an open transaction may still
change them, and neither does their group.
"""

from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic import states as tables
from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.requests import UNKNOWN_MEMBER
from broker_core.coordinator.groups.classic.states import ExpiryBasis, GroupState
from broker_core.coordinator.groups.consumer import states as consumer_tables
from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.offsets.store import (
    FetchedOffset,
    OffsetCommit,
    OffsetKey,
    OffsetsResult,
    OffsetStore,
    OffsetValue,
    offset_record,
)
from broker_core.coordinator.groups.shard import GroupShard
from broker_core.coordinator.journal import JournalRecord
from broker_core.errors import ErrorCode
from broker_core.types import LONGEST_STRING_BYTES, NO_TIMESTAMP, TopicPartition

_UNSTABLE = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)


def commit_error(group: ClassicGroup | None, request: OffsetCommit) -> ErrorCode:
    """Return the error for a commit to the classic group, NONE if it is allowed (rules E.1/9 to E.1/15)."""
    is_transactional = request.producer is not None
    if group is None:
        missing = ErrorCode.GROUP_ID_NOT_FOUND if request.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE if request.generation_id < 0 else missing
    is_anonymous = request.member_id == UNKNOWN_MEMBER and request.group_instance_id is None
    if request.generation_id < 0 and (is_anonymous or group.state is GroupState.EMPTY):
        return tables.ANONYMOUS_COMMIT[group.state, is_transactional]
    error = group.caller_error(request.member_id, request.group_instance_id, request.generation_id)
    return tables.COMMIT[group.state, is_transactional] if error is ErrorCode.NONE else error


class OffsetCommits:
    """The handling of requests about a group's offsets."""

    def __init__(self, config: BrokerConfig, topics: Topics, with_topic_ids: bool) -> None:
        self._topics = topics
        self._with_topic_ids = with_topic_ids
        self._metadata_limit = config.offset_metadata_max_bytes

    def commit(self, shard: GroupShard, request: OffsetCommit, now_ms: int) -> dict[TopicPartition, ErrorCode]:
        """Record the offsets in one append; in a transaction they are pending until its marker."""
        error = self._commit_error(shard, request)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(request.offsets, error)
        verdicts = {
            topic_partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            if self._is_too_long(offset.metadata)
            else ErrorCode.NONE
            for topic_partition, offset in request.offsets.items()
        }
        accepted = [topic_partition for topic_partition, verdict in verdicts.items() if verdict is ErrorCode.NONE]
        expire_ms = _expire_ms(request, now_ms)
        records = []
        for topic_partition in accepted:
            made = request.offsets[topic_partition]
            topic_id = self._topic_id(topic_partition)
            value = OffsetValue(made.offset, made.leader_epoch, made.metadata or "", now_ms, expire_ms, topic_id)
            key = OffsetKey(request.group_id, topic_partition)
            records.append(offset_record(key, value, with_topic_id=self._with_topic_ids))
        error = shard.record(records, now_ms, request.producer)
        if error is ErrorCode.NONE and request.group_id not in shard.consumer_groups:
            shard.ensure_group(request.group_id)
        return verdicts | dict.fromkeys(accepted, error)

    def _topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        found = self._topics.topics.get(topic_partition.topic) if self._with_topic_ids else None
        return None if found is None else found.topic_id

    def _commit_error(self, shard: GroupShard, request: OffsetCommit) -> ErrorCode:
        """Return the errors by the rules of the group's protocol (rules E.1/9 to E.1/17)."""
        if shard.feature_group(request.group_id) is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = shard.consumer_groups.get(request.group_id)
        if group is None:
            return commit_error(shard.groups.get(request.group_id), request)
        partitions = []
        for topic, partition in request.offsets:
            found = self._topics.topics.get(topic)
            if found is not None:
                partitions.append(TopicIdPartition(found.topic_id, partition))
        return group.commit_error(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            partitions,
            transactional=request.producer is not None,
            knows_member_epochs=request.knows_member_epochs,
        )

    def fetch(
        self, shard: GroupShard, group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool
    ) -> OffsetsResult[FetchedOffset]:
        committed = shard.offsets.committed(group_id)
        offsets = {}
        for topic_partition in committed if partitions is None else partitions:
            stored = committed.get(topic_partition)
            if require_stable and shard.offsets.is_pending(OffsetKey(group_id, topic_partition)):
                offsets[topic_partition] = _UNSTABLE
            elif stored is None:
                offsets[topic_partition] = FetchedOffset()
            else:
                value = stored.value
                offsets[topic_partition] = FetchedOffset(
                    ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata, value.topic_id
                )
        return OffsetsResult(ErrorCode.NONE, offsets)

    def delete(
        self, shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> OffsetsResult[ErrorCode]:
        """Delete offsets of topics that no member reads, pending ones too."""
        group, consumer_group = shard.groups.get(group_id), shard.consumer_groups.get(group_id)
        known = consumer_group or group
        if known is None:
            return OffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if consumer_group is None and group is not None:
            error = tables.DELETE_OFFSETS[group.state, group.is_consumer_group]
            if error is not ErrorCode.NONE:
                return OffsetsResult(error)
        reads = _reads(known)
        verdicts = {
            topic_partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if reads(topic_partition.topic) else ErrorCode.NONE
            for topic_partition in partitions
        }
        doomed = [topic_partition for topic_partition, verdict in verdicts.items() if verdict is ErrorCode.NONE]
        error = shard.record(self.tombstones(shard, group_id, doomed), now_ms)
        return OffsetsResult(error, verdicts if error is ErrorCode.NONE else {})

    def delete_group(self, shard: GroupShard, group_id: str, now_ms: int) -> ErrorCode:
        group, consumer_group = shard.groups.get(group_id), shard.consumer_groups.get(group_id)
        other = shard.feature_group(group_id)
        if other is not None:
            return ErrorCode.NON_EMPTY_GROUP if other.members else shard.record(other.tombstones(), now_ms)
        if consumer_group is not None:
            error = consumer_tables.DELETE_GROUP[consumer_group.state]
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else tables.DELETE_GROUP[group.state]
        if error is not ErrorCode.NONE:
            return error
        every = [*shard.offsets.committed(group_id), *shard.offsets.pending_partitions(group_id)]
        last = consumer_group.tombstones() if consumer_group else shard.group_tombstone(group_id)
        return shard.record([*self.tombstones(shard, group_id, every), *last], now_ms)

    def tombstones(self, shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition]) -> list[JournalRecord]:
        """Return the tombstones of the partitions that have an offset, committed or pending."""
        committed = shard.offsets.committed(group_id)
        keys = [OffsetKey(group_id, topic_partition) for topic_partition in dict.fromkeys(partitions)]
        return [
            offset_record(key, None)
            for key in keys
            if key.topic_partition in committed or shard.offsets.is_pending(key)
        ]

    def _is_too_long(self, metadata: str | None) -> bool:
        """Return whether the metadata is too long, in UTF-16 units as in Java, or for a field of a record."""
        text = metadata or ""
        is_long = len(text.encode("utf-16-be")) // 2 > self._metadata_limit
        return is_long or len(text.encode()) > LONGEST_STRING_BYTES


def _expire_ms(request: OffsetCommit, now_ms: int) -> int:
    """Return the expiration time if the commit has a retention; it is limited to 64 bits."""
    if request.retention_ms < 0:
        return NO_TIMESTAMP
    return min(now_ms + request.retention_ms, 2**63 - 1)


def expiry_basis(group: ClassicGroup) -> ExpiryBasis:
    if group.protocol_type is None:
        return tables.EXPIRY_BASIS[group.state, "simple"]
    can_tell = group.is_consumer_group and group.topics is not None
    return tables.EXPIRY_BASIS[group.state, "consumer" if can_tell else "other"]


def _reads(group: ClassicGroup | ConsumerGroup) -> Callable[[str], bool]:
    return group.subscribes_to if isinstance(group, ClassicGroup) else group.subscribed_topics().__contains__


def expired_partitions(
    offsets: OffsetStore, group: ClassicGroup | ConsumerGroup, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions, of topics that no member reads, whose committed offset has expired."""
    reads, since_ms = _reads(group), NO_TIMESTAMP
    if isinstance(group, ClassicGroup):
        basis = expiry_basis(group)
        if basis is ExpiryBasis.NEVER:
            return []
        since_ms = group.state_since_ms if basis is ExpiryBasis.SINCE_EMPTY else NO_TIMESTAMP
    return [
        topic_partition
        for topic_partition, stored in offsets.committed(group.group_id).items()
        if _is_expired(stored.value, since_ms, now_ms, retention_ms)
        and not reads(topic_partition.topic)
        and not offsets.is_pending(OffsetKey(group.group_id, topic_partition))
    ]


def _is_expired(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    basis_ms = value.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
    return now_ms - basis_ms >= retention_ms
