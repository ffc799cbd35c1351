"""Share a group's partitions among its members, on the coordinator's side (KIP-848, "Assignors")."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.consumer_group_records import Partitions, TopicIdPartition


class Reader(NamedTuple):
    """Show an assignor one member: the topics it reads and what it was to read so far."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    had: Partitions


Readers = Mapping[str, Reader]
PartitionCounts = Mapping[UUID, int]
Shares = dict[str, set[TopicIdPartition]]
Assignor = Callable[[Readers, PartitionCounts], Shares]


def assign_uniformly(readers: Readers, counts: PartitionCounts) -> Shares:
    """Give everybody as nearly the same number as subscriptions allow, moving as little as possible."""
    shares = _kept(readers, counts)
    subscribers = _subscribers(readers, counts)
    given = set().union(*shares.values())
    free = [
        TopicIdPartition(topic_id, number)
        # Topics that few read come first: whoever reads others too can be given those afterwards.
        for topic_id in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
        for number in range(counts[topic_id])]
    for partition in free:
        if partition not in given and subscribers[partition.topic_id]:
            shares[_least_loaded(shares, subscribers[partition.topic_id])].add(partition)
    _balance(shares, subscribers)
    return shares


def assign_ranges(readers: Readers, counts: PartitionCounts) -> Shares:
    """Give each member one range of every topic, the same one of equally large topics read by the same members."""
    shares: Shares = {member_id: set() for member_id in readers}
    for topic_id, members in _subscribers(readers, counts).items():
        # Static members first and by their lasting name: a restart does not shuffle the ranges.
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


def _subscribers(readers: Readers, counts: PartitionCounts) -> dict[UUID, list[str]]:
    return {
        topic_id: [member_id for member_id in sorted(readers) if topic_id in readers[member_id].topics]
        for topic_id in sorted(counts)}


def _kept(readers: Readers, counts: PartitionCounts) -> Shares:
    """Leave everybody what it had and may still have; nothing goes to two of them."""
    shares: Shares = {}
    given: set[TopicIdPartition] = set()
    for member_id, reader in sorted(readers.items()):
        shares[member_id] = {
            partition for partition in reader.had - given
            if partition.topic_id in reader.topics and partition.partition < counts.get(partition.topic_id, 0)}
        given |= shares[member_id]
    return shares


def _least_loaded(shares: Shares, members: list[str]) -> str:
    return min(members, key=lambda member_id: len(shares[member_id]))


def _balance(shares: Shares, subscribers: Mapping[UUID, list[str]]) -> None:
    """Move single partitions from the fullest to members with at least two fewer, until there is no such move."""
    while (move := _next_move(shares, subscribers)) is not None:
        donor, partition, receiver = move
        shares[donor].remove(partition)
        shares[receiver].add(partition)


def _next_move(
    shares: Shares, subscribers: Mapping[UUID, list[str]],
) -> tuple[str, TopicIdPartition, str] | None:
    for donor in sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id)):
        for partition in sorted(shares[donor], key=lambda each: (each.partition, each.topic_id), reverse=True):
            receiver = _least_loaded(shares, subscribers[partition.topic_id])
            if len(shares[donor]) - len(shares[receiver]) >= 2:
                return donor, partition, receiver
    return None
