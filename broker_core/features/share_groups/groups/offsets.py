"""The administration of share groups: their start offsets are altered and deleted, and groups are deleted.

The share coordinator keeps the offsets. The group coordinator records that it begins an initialization or a deletion
before it asks the share coordinator, and records the end with `initialized`, `not_initialized` or `deleted`. So after a
crash in between it is repeated.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.group_types import FeatureShard
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.groups.group import (
    ShareGroup,
    ShareGroupDraft,
    find,
    find_or_create,
    share_groups_in,
)
from broker_core.features.share_groups.groups.records import NamedPartitions, RecordType, StatePartitions
from broker_core.features.share_groups.groups.requests import Deletion, Initialization
from broker_core.features.share_groups.states.state import UNINITIALIZED, Outcome, standard_error

_NO_OFFSETS = "There is no offset information to delete."
UNKNOWN = Outcome.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_Named = Mapping[UUID, NamedPartitions]
ValueT = TypeVar("ValueT")


class ShareOffsets:
    """The changes of the offsets of share groups; `shard_of` returns the partition of a group, or raises its error."""

    def __init__(self, topics: Topics, shard_of: Callable[[str], FeatureShard]) -> None:
        self._topics = topics
        self._shard_of = shard_of

    def initialized_partitions(self, group_id: str) -> Mapping[UUID, frozenset[int]]:
        """Return the partitions whose state is kept for a group; none for a group that does not exist."""
        group = share_groups_in(self._shard_of(group_id)).get(group_id, ShareGroup(group_id))
        return {topic_id: named.partitions for topic_id, named in group.state_partitions.initialized.items()}

    def alter(self, group_id: str, offsets: Mapping[TopicIdPartition, int], now_ms: int) -> Initialization:
        """Begin to set start offsets of an empty group, which is created if it does not exist."""
        shard = self._shard_of(group_id)
        group = _empty(find_or_create(shard, group_id, create=True))
        if offsets:
            _record(shard, group, _beginning(group.state_partitions, _named(offsets, self._topics, "")), now_ms)
        return Initialization(group_id, group.epoch.epoch, offsets)

    def begin_deletion_of_offsets(
        self, group_id: str, names: Collection[str], now_ms: int
    ) -> tuple[Deletion, dict[str, Outcome]]:
        """Begin to delete the offsets of topics of an empty group; return the errors of the others by name."""
        shard = self._shard_of(group_id)
        group = _empty(find(shard, group_id))
        known = group.state_partitions
        initialized, deleting = dict(known.initialized), dict(known.deleting)
        doomed: set[TopicIdPartition] = set()
        refused: dict[str, Outcome] = {}
        if not group.has_state:
            # As in Kafka, a group for which no state was ever kept has no result for any topic.
            return Deletion(group_id, frozenset()), {}
        for name in names:
            facts = self._topics.topics.get(name)
            if facts is None:
                refused[name] = UNKNOWN
            elif facts.topic_id in initialized:
                partitions = initialized.pop(facts.topic_id).partitions
                deleting[facts.topic_id] = name
                doomed |= {TopicIdPartition(facts.topic_id, partition) for partition in partitions}
            elif facts.topic_id in deleting:
                doomed |= {TopicIdPartition(facts.topic_id, each) for each in range(facts.partition_count)}
            else:
                refused[name] = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_OFFSETS)
        _change(shard, group, StatePartitions(known.initializing, initialized, deleting), now_ms)
        return Deletion(group_id, frozenset(doomed)), refused

    def begin_deletion_of_group(self, shard: FeatureShard, group_id: str, now_ms: int) -> Deletion:
        """Begin to delete an empty group, with all state that is kept for it."""
        group = _empty(find(shard, group_id))
        known = group.state_partitions
        doomed = {
            TopicIdPartition(topic_id, partition)
            for each in (known.initialized, known.initializing)
            for topic_id, named in each.items()
            for partition in named.partitions
        }
        kept = {**known.initializing, **known.initialized}
        deleting = {**known.deleting, **{topic_id: named.name for topic_id, named in kept.items()}}
        for topic_id in known.deleting:
            facts = self._topics.topics.get(self._topics.names.get(topic_id, ""))
            if facts is not None:
                doomed |= {TopicIdPartition(topic_id, partition) for partition in range(facts.partition_count)}
        _change(shard, group, StatePartitions({}, {}, deleting), now_ms)
        return Deletion(group_id, frozenset(doomed))

    def initialized(self, group_id: str, done: Partitions, now_ms: int) -> None:
        """Record that the share coordinator keeps the states of these partitions."""
        named = _named(done, self._topics, "<UNKNOWN>")
        self._end(
            group_id,
            lambda known: known._replace(
                initializing=_without(known.initializing, done), initialized=_merged(known.initialized, named)
            ),
            now_ms,
        )

    def not_initialized(self, group_id: str, failed: Partitions, now_ms: int) -> None:
        """Record that the share coordinator could not initialize these partitions: it is tried again later."""
        self._end(group_id, lambda known: known._replace(initializing=_without(known.initializing, failed)), now_ms)

    def deleted(self, group_id: str, topic_ids: Collection[UUID], now_ms: int) -> None:
        self._end(group_id, lambda known: known._replace(deleting=_without_topics(known.deleting, topic_ids)), now_ms)

    def forget_topics(self, shard: FeatureShard, topic_ids: Collection[UUID], now_ms: int) -> None:
        for group in list(share_groups_in(shard).values()):
            initializing, initialized, deleting = group.state_partitions
            left = StatePartitions(
                _without_topics(initializing, topic_ids),
                _without_topics(initialized, topic_ids),
                _without_topics(deleting, topic_ids),
            )
            _change(shard, group, left, now_ms)

    def _end(self, group_id: str, change: Callable[[StatePartitions], StatePartitions], now_ms: int) -> None:
        shard = self._shard_of(group_id)
        group = share_groups_in(shard).get(group_id)
        if group is not None:
            _change(shard, group, change(group.state_partitions), now_ms)


def begin_initialization(draft: ShareGroupDraft, names: Iterable[str], topics: Topics) -> Initialization | None:
    """Record that the states of partitions of these topics are initialized that are not yet; None if all are.

    Partitions that were added to a topic begin with their first record, so that none is lost.
    """
    known = draft.group.state_partitions
    wanted: dict[UUID, NamedPartitions] = {}
    for name in sorted(names):
        facts = topics.topics.get(name)
        if facts is not None:
            initialized = known.initialized.get(facts.topic_id, NamedPartitions(name, frozenset())).partitions
            missing = frozenset(range(facts.partition_count)) - initialized
            if missing:
                wanted[facts.topic_id] = NamedPartitions(name, missing)
    if not wanted:
        return None
    changed = _beginning(known, wanted)
    if changed != known:
        draft.put(RecordType.STATE_PARTITIONS, changed)
    return Initialization(
        draft.group.group_id,
        draft.group.epoch.epoch,
        {
            TopicIdPartition(topic_id, partition): 0 if topic_id in known.initialized else UNINITIALIZED
            for topic_id, named in wanted.items()
            for partition in sorted(named.partitions)
        },
    )


def _beginning(known: StatePartitions, wanted: _Named) -> StatePartitions:
    initializing = _merged(known.initializing, wanted)
    return StatePartitions(initializing, known.initialized, _without_topics(known.deleting, initializing))


def _named(partitions: Collection[TopicIdPartition], topics: Topics, unknown: str) -> dict[UUID, NamedPartitions]:
    return {
        topic_id: NamedPartitions(topics.names.get(topic_id, unknown), frozenset(numbers))
        for topic_id, numbers in partitions_by_topic(partitions).items()
    }


def _merged(before: _Named, added: _Named) -> dict[UUID, NamedPartitions]:
    """Return the partitions of both; the later name of a topic counts."""
    none = NamedPartitions("", frozenset())
    return {
        **before,
        **{
            topic_id: NamedPartitions(named.name, before.get(topic_id, none).partitions | named.partitions)
            for topic_id, named in added.items()
        },
    }


def _without(before: _Named, gone: Collection[TopicIdPartition]) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, named in before.items():
        partitions = named.partitions - {each.partition for each in gone if each.topic_id == topic_id}
        if partitions:
            left[topic_id] = NamedPartitions(named.name, partitions)
    return left


def _without_topics(before: Mapping[UUID, ValueT], gone: Collection[UUID]) -> dict[UUID, ValueT]:
    return {topic_id: value for topic_id, value in before.items() if topic_id not in gone}


def _empty(group: ShareGroup) -> ShareGroup:
    if group.members:
        raise standard_error(ErrorCode.NON_EMPTY_GROUP)
    return group


def _change(shard: FeatureShard, group: ShareGroup, changed: StatePartitions, now_ms: int) -> None:
    if changed != group.state_partitions:
        _record(shard, group, changed, now_ms)


def _record(shard: FeatureShard, group: ShareGroup, changed: StatePartitions, now_ms: int) -> None:
    draft = ShareGroupDraft(group)
    draft.put(RecordType.STATE_PARTITIONS, changed)
    error = shard.record(draft.records, now_ms)
    if error is not ErrorCode.NONE:
        raise standard_error(error)
