"""The partitions whose state the share coordinator keeps for a share group: which they are, and how that changes.

The group coordinator records that it begins an initialization or a deletion before it asks the share coordinator, and
records the end afterwards. So after a crash in between it is repeated.
"""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.features.share_groups.groups.group import ShareGroupDraft
from broker_core.features.share_groups.groups.records import NamedPartitions, RecordType, StatePartitions
from broker_core.features.share_groups.groups.requests import Initialization
from broker_core.features.share_groups.states.state import UNINITIALIZED


def begin_initialization(draft: ShareGroupDraft, names: Iterable[str], topics: Topics) -> Initialization | None:
    """Record that the states of partitions of these topics are initialized that are not yet; None if all are.

    Partitions that were added to a topic begin with their first record, so that none is lost.
    """
    known = draft.group.state_partitions
    wanted: dict[UUID, NamedPartitions] = {}
    for name in sorted(names):
        facts = topics.find(name)
        if facts is not None:
            initialized = known.initialized.get(facts.topic_id, NamedPartitions(name, frozenset())).partitions
            missing = frozenset(range(facts.partition_count)) - initialized
            if missing:
                wanted[facts.topic_id] = NamedPartitions(name, missing)
    if not wanted:
        return None
    initializing = merged(known.initializing, wanted)
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in initializing}
    changed = StatePartitions(initializing, known.initialized, deleting)
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


def with_initialized(known: StatePartitions, done: Collection[TopicIdPartition], topics: Topics) -> StatePartitions:
    """Return the partitions after these were initialized."""
    named = {
        topic_id: NamedPartitions(topics.name_of(topic_id) or "<UNKNOWN>", frozenset(partitions))
        for topic_id, partitions in partitions_by_topic(done).items()
    }
    return known._replace(initializing=_without(known.initializing, done), initialized=merged(known.initialized, named))


def without_initializing(known: StatePartitions, failed: Collection[TopicIdPartition]) -> StatePartitions:
    """Return the partitions after the initialization of these failed: it is tried again later."""
    return known._replace(initializing=_without(known.initializing, failed))


def without_topics(known: StatePartitions, topic_ids: Collection[UUID]) -> StatePartitions:
    """Return the partitions without those of topics that were deleted."""
    return StatePartitions(
        {topic_id: named for topic_id, named in known.initializing.items() if topic_id not in topic_ids},
        {topic_id: named for topic_id, named in known.initialized.items() if topic_id not in topic_ids},
        {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids},
    )


def merged(
    before: Mapping[UUID, NamedPartitions], added: Mapping[UUID, NamedPartitions]
) -> dict[UUID, NamedPartitions]:
    """Return the partitions of both; the later name of a topic counts."""
    found = dict(before)
    for topic_id, named in added.items():
        earlier = found.get(topic_id)
        found[topic_id] = NamedPartitions(
            named.name, named.partitions if earlier is None else earlier.partitions | named.partitions
        )
    return found


def _without(before: Mapping[UUID, NamedPartitions], gone: Collection[TopicIdPartition]) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, named in before.items():
        partitions = named.partitions - {each.partition for each in gone if each.topic_id == topic_id}
        if partitions:
            left[topic_id] = NamedPartitions(named.name, partitions)
    return left
