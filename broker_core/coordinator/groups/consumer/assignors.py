"""The server-side assignors, which distribute a group's partitions over its members (KIP-848, "Assignors")."""

from collections.abc import Callable, Mapping
from itertools import chain
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
    balance = Balance(shares, subscribers)
    # After most changes all partitions are kept.
    if sum(map(len, shares.values())) < sum(counts.values()):
        given = set().union(*shares.values())
        balance.give(
            partition
            # Topics with few readers first: the load can be balanced with the others afterwards.
            for topic_id in sorted(subscribers, key=lambda topic: len(subscribers[topic]))
            for number in range(counts[topic_id])
            if (partition := TopicIdPartition(topic_id, number)) not in given
        )
    balance.even_out()
    return shares


def assign_ranges(readers: Readers, counts: PartitionCounts) -> Shares:
    """Assign each member one range of every topic, the same range of topics with equal size and equal readers."""
    shares: Shares = {member_id: set() for member_id in readers}
    # Static members first, by instance id, so that a restart does not change the ranges.
    order = {member_id: _range_order(reader) for member_id, reader in readers.items()}
    ordered: dict[tuple[str, ...], list[str]] = {}
    for topic_id, members in _subscribers(readers, counts).items():
        if members not in ordered:
            ordered[members] = sorted(members, key=order.__getitem__)
        start = 0
        # Without those that are too many for one partition each.
        for index, member_id in enumerate(ordered[members][: counts[topic_id]]):
            size = counts[topic_id] // len(members) + (index < counts[topic_id] % len(members))
            shares[member_id].update(TopicIdPartition(topic_id, number) for number in range(start, start + size))
            start += size
    return shares


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}


def _range_order(reader: Reader) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or reader.member_id


def _subscribers(readers: Readers, counts: PartitionCounts) -> dict[UUID, tuple[str, ...]]:
    """Return the readers of each topic; both are sorted, and topics with the same readers have the same tuple."""
    by_topics: dict[frozenset[UUID], list[str]] = {}
    for member_id in sorted(readers):
        by_topics.setdefault(readers[member_id].topics, []).append(member_id)
    crowds: dict[tuple[frozenset[UUID], ...], tuple[str, ...]] = {}
    found = {}
    for topic_id in sorted(counts):
        parts = tuple(topics for topics in by_topics if topic_id in topics)
        if parts not in crowds:
            crowds[parts] = tuple(sorted(chain.from_iterable(by_topics[topics] for topics in parts)))
        found[topic_id] = crowds[parts]
    return found


def _kept(readers: Readers, counts: PartitionCounts) -> Shares:
    """Return the partitions that each reader keeps; no partition has two readers."""
    shares: Shares = {}
    given: set[TopicIdPartition] = set()
    sizes: dict[frozenset[UUID], dict[UUID, int]] = {}
    for member_id in sorted(readers):
        _, _, topics, had = readers[member_id]
        if topics not in sizes:
            sizes[topics] = {topic_id: counts.get(topic_id, 0) for topic_id in topics}
        size_of = sizes[topics].get
        share = {partition for partition in had if partition[1] < size_of(partition[0], 0)} if had else set()
        if not share.isdisjoint(given):
            share -= given
        given |= share
        shares[member_id] = share
    return shares
