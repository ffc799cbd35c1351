"""The server-side assignors, which distribute a group's partitions over its members (KIP-848, "Assignors")."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.balance import Balance, Shares
from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition


class Reader(NamedTuple):
    """One member as an assignor sees it: its topics and its previous target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    had: Partitions


Readers = Mapping[str, Reader]
PartitionCounts = Mapping[UUID, int]
Assignor = Callable[[Readers, PartitionCounts], Shares]


def assign_uniformly(readers: Readers, counts: PartitionCounts) -> Shares:
    """Assign each reader as equal a number of partitions as subscriptions allow, with as few moves as possible."""
    shares = _kept(readers, counts)
    subscribers = _subscribers(readers, counts)
    given = set().union(*shares.values())
    balance = Balance(shares, subscribers)
    balance.give(
        partition
        # Topics with few readers first: the load can be balanced with the others afterwards.
        for topic_id in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
        for number in range(counts[topic_id])
        if (partition := TopicIdPartition(topic_id, number)) not in given
    )
    balance.even_out()
    return shares


def assign_ranges(readers: Readers, counts: PartitionCounts) -> Shares:
    """Assign each member one range of every topic, the same range of topics with equal size and equal readers."""
    shares: Shares = {member_id: set() for member_id in readers}
    for topic_id, members in _subscribers(readers, counts).items():
        # Static members first, by instance id, so that a restart does not change the ranges.
        ordered = sorted(members, key=lambda member_id: _range_order(readers[member_id]))
        start = 0
        for index, member_id in enumerate(ordered):
            size = counts[topic_id] // len(ordered) + (index < counts[topic_id] % len(ordered))
            shares[member_id].update(TopicIdPartition(topic_id, number) for number in range(start, start + size))
            start += size
    return shares


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}


def _range_order(reader: Reader) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or reader.member_id


def _subscribers(readers: Readers, counts: PartitionCounts) -> dict[UUID, tuple[str, ...]]:
    ordered = sorted(readers)
    return {
        topic_id: tuple(member_id for member_id in ordered if topic_id in readers[member_id].topics)
        for topic_id in sorted(counts)
    }


def _kept(readers: Readers, counts: PartitionCounts) -> Shares:
    """Return the partitions that each reader keeps; no partition has two readers."""
    shares: Shares = {}
    given: set[TopicIdPartition] = set()
    for member_id, reader in sorted(readers.items()):
        shares[member_id] = {
            partition
            for partition in reader.had - given
            if partition.topic_id in reader.topics and partition.partition < counts.get(partition.topic_id, 0)
        }
        given |= shares[member_id]
    return shares
