"""The administration of share groups: their start offsets are altered and deleted, and groups are deleted.

The share coordinator keeps the offsets. Each change begins here, continues there, and ends here with `initialized`,
`not_initialized` or `deleted`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.group_types import FeatureShard
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.features.share_groups.groups.group import ShareGroup, ShareGroupDraft, share_groups_in
from broker_core.features.share_groups.groups.membership import find, find_or_create
from broker_core.features.share_groups.groups.records import NamedPartitions, RecordType, StatePartitions
from broker_core.features.share_groups.groups.requests import Deletion, Initialization
from broker_core.features.share_groups.groups.state_partitions import (
    merged,
    with_initialized,
    without_initializing,
    without_topics,
)

_NO_OFFSETS = "There is no offset information to delete."


class Refusal(NamedTuple):
    """The error for one topic or partition."""

    error: ErrorCode
    message: str | None


UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, STANDARD_MESSAGES[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


class OffsetDeletion(NamedTuple):
    """The topics whose offsets are deleted, and the errors of the others by name."""

    deletion: Deletion
    refused: Mapping[str, Refusal]


class ShareOffsets:
    """The changes of the offsets of the share groups of a partition of `__consumer_offsets`."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def alter(
        self, shard: FeatureShard, group_id: str, offsets: Mapping[TopicIdPartition, int], now_ms: int
    ) -> Initialization:
        """Begin to set start offsets of an empty group, which is created if it does not exist."""
        group = find_or_create(shard, group_id, create=True)
        _require_empty(group)
        draft = ShareGroupDraft(group)
        known = group.state_partitions
        wanted = self._named(offsets)
        if wanted:
            initializing = merged(known.initializing, wanted)
            deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in initializing}
            draft.put(RecordType.STATE_PARTITIONS, StatePartitions(initializing, known.initialized, deleting))
        _record(shard, draft, now_ms)
        return Initialization(group_id, group.epoch.epoch, offsets)

    def begin_deletion_of_offsets(
        self, shard: FeatureShard, group_id: str, names: Collection[str], now_ms: int
    ) -> OffsetDeletion:
        """Begin to delete the offsets of topics of an empty group."""
        group = find(shard, group_id)
        _require_empty(group)
        known = group.state_partitions
        initialized, deleting = dict(known.initialized), dict(known.deleting)
        doomed: set[TopicIdPartition] = set()
        refused: dict[str, Refusal] = {}
        if not group.has_state:
            # As in Kafka, a group for which no state was ever kept has no result for any topic.
            return OffsetDeletion(Deletion(group_id, frozenset()), {})
        for name in names:
            facts = self._topics.find(name)
            if facts is None:
                refused[name] = UNKNOWN
            elif facts.topic_id in initialized:
                partitions = initialized.pop(facts.topic_id).partitions
                deleting[facts.topic_id] = name
                doomed |= {TopicIdPartition(facts.topic_id, partition) for partition in partitions}
            elif facts.topic_id in deleting:
                doomed |= {TopicIdPartition(facts.topic_id, each) for each in range(facts.partition_count)}
            else:
                refused[name] = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_OFFSETS)
        draft = ShareGroupDraft(group)
        changed = StatePartitions(known.initializing, initialized, deleting)
        if changed != known:
            draft.put(RecordType.STATE_PARTITIONS, changed)
        _record(shard, draft, now_ms)
        return OffsetDeletion(Deletion(group_id, frozenset(doomed)), refused)

    def begin_deletion_of_group(self, shard: FeatureShard, group_id: str, now_ms: int) -> Deletion:
        """Begin to delete an empty group, with all state that is kept for it."""
        group = find(shard, group_id)
        _require_empty(group)
        known = group.state_partitions
        doomed = {
            TopicIdPartition(topic_id, partition)
            for each in (known.initialized, known.initializing)
            for topic_id, named in each.items()
            for partition in named.partitions
        }
        deleting = {
            **known.deleting,
            **{topic_id: named.name for topic_id, named in {**known.initializing, **known.initialized}.items()},
        }
        for topic_id in known.deleting:
            name = self._topics.name_of(topic_id)
            facts = None if name is None else self._topics.find(name)
            if facts is not None:
                doomed |= {TopicIdPartition(topic_id, partition) for partition in range(facts.partition_count)}
        draft = ShareGroupDraft(group)
        changed = StatePartitions({}, {}, deleting)
        if changed != known:
            draft.put(RecordType.STATE_PARTITIONS, changed)
        _record(shard, draft, now_ms)
        return Deletion(group_id, frozenset(doomed))

    def initialized(self, shard: FeatureShard, group_id: str, done: Partitions, now_ms: int) -> None:
        """Record that the share coordinator keeps the states of these partitions."""
        self._change(shard, group_id, lambda known: with_initialized(known, done, self._topics), now_ms)

    def not_initialized(self, shard: FeatureShard, group_id: str, failed: Partitions, now_ms: int) -> None:
        """Record that the share coordinator could not initialize these partitions."""
        self._change(shard, group_id, lambda known: without_initializing(known, failed), now_ms)

    def deleted(self, shard: FeatureShard, group_id: str, topic_ids: Collection[UUID], now_ms: int) -> None:
        """Record that the states of these topics are deleted."""

        def change(known: StatePartitions) -> StatePartitions:
            return known._replace(
                deleting={each: name for each, name in known.deleting.items() if each not in topic_ids}
            )

        self._change(shard, group_id, change, now_ms)

    def forget_topics(self, shard: FeatureShard, topic_ids: Collection[UUID], now_ms: int) -> None:
        """Forget topics that are being deleted, in all groups."""
        for group_id in list(share_groups_in(shard)):
            self._change(shard, group_id, lambda known: without_topics(known, topic_ids), now_ms)

    def _change(
        self, shard: FeatureShard, group_id: str, change: Callable[[StatePartitions], StatePartitions], now_ms: int
    ) -> None:
        group = share_groups_in(shard).get(group_id)
        if group is not None:
            changed = change(group.state_partitions)
            if changed != group.state_partitions:
                draft = ShareGroupDraft(group)
                draft.put(RecordType.STATE_PARTITIONS, changed)
                _record(shard, draft, now_ms)

    def _named(self, offsets: Collection[TopicIdPartition]) -> dict[UUID, NamedPartitions]:
        named: dict[UUID, NamedPartitions] = {}
        for topic_id, partition in offsets:
            name = self._topics.name_of(topic_id) or ""
            named = merged(named, {topic_id: NamedPartitions(name, frozenset({partition}))})
        return named


def _require_empty(group: ShareGroup) -> None:
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, STANDARD_MESSAGES[ErrorCode.NON_EMPTY_GROUP])


def _record(shard: FeatureShard, draft: ShareGroupDraft, now_ms: int) -> None:
    error = shard.record(draft.records, now_ms)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, STANDARD_MESSAGES.get(error, ""))
