"""The assignor of share groups, Kafka's `simple`.

With more members than partitions several members share a partition; with fewer, each has several. An assignment changes
as little as possible.
"""

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition

ASSIGNOR_NAME: Final = "simple"


class ShareReader(NamedTuple):
    """One member as the assignor sees it: its topics and its previous target."""

    topics: frozenset[UUID]
    had: Partitions


def assign(readers: Mapping[str, ShareReader], assignable: Collection[TopicIdPartition]) -> dict[str, Partitions]:
    """Return the target of each reader; only assignable partitions are given out."""
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
    partitions: Sequence[TopicIdPartition], members: Sequence[str], readers: Mapping[str, ShareReader]
) -> dict[str, set[TopicIdPartition]]:
    """Distribute partitions over the members that read all of their topics."""
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
