"""The server-side assignors, which distribute a group's partitions over its members (KIP-848, "Assignors").

Partitions are balanced one move at a time, without a full scan for each move: a member with ten thousand partitions
makes thousands of moves. Topics read by the same members form one *crowd*, which has one least loaded member. Heaps
order the members of a crowd by load, the partitions of a donor by number, and the possible donors by load; outdated
entries are dropped when they reach the top. A donor without a receiver is tried again only when one of its crowds gets
a member with a low enough load. Only members with at least two more than the least loaded of all are donors: a join
into a balanced group has few of them.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition

Shares = dict[str, set[TopicIdPartition]]

# A receiver must have at least this many fewer, or the move would only swap the two.
_WORTHWHILE = 2
_SOME = 16


class _Rank(NamedTuple):
    """The descending order of partitions: the last topic first, the highest number first."""

    partition: int
    topic: int


class Crowd:
    """The members with the same topics, by load in ascending order, then by name."""

    def __init__(self, members: tuple[str, ...], loads: Mapping[str, int]) -> None:
        self._members = frozenset(members)
        self._loads = loads
        self._heap: list[tuple[int, str]] = []
        self._begin()

    def _begin(self) -> None:
        self._heap = [(self._loads[member_id], member_id) for member_id in self._members]
        heapq.heapify(self._heap)

    def changed(self, member_id: str) -> None:
        heapq.heappush(self._heap, (self._loads[member_id], member_id))
        if len(self._heap) > 2 * len(self._members) + _SOME:
            self._begin()

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def least_loaded(self) -> str:
        while self._heap[0][0] != self._loads[self._heap[0][1]]:
            heapq.heappop(self._heap)
        return self._heap[0][1]


class Balance:
    """An assignment that is being balanced; `subscribers` are the readers of each topic, sorted."""

    def __init__(self, shares: Shares, subscribers: Mapping[UUID, tuple[str, ...]]) -> None:
        self._shares = shares
        self._loads = {member_id: len(share) for member_id, share in shares.items()}
        everyone = tuple(sorted(set().union(*subscribers.values())))
        crowds = {members: Crowd(members, self._loads) for members in {everyone, *subscribers.values()}}
        self._everyone = crowds[everyone]
        self._crowd_of = {topic_id: crowds[members] for topic_id, members in subscribers.items() if members}
        self._all_crowds = tuple(crowds.values())
        self._crowds: dict[str, list[Crowd]] = {}
        self._topics = sorted(subscribers)
        self._number = {topic_id: number for number, topic_id in enumerate(self._topics)}
        self._ranked: dict[str, dict[Crowd, list[_Rank]]] = {}
        self._donors: list[tuple[int, str]] = []
        # Donors without a receiver, by load and by a crowd that may get one.
        self._waiting: dict[tuple[int, Crowd], set[str]] = {}

    def give(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Assign each of the partitions to the reader with the lowest load."""
        for partition in partitions:
            crowd = self._crowd_of.get(partition.topic_id)
            if crowd is not None:
                member_id = crowd.least_loaded()
                self._shares[member_id].add(partition)
                self._load(member_id, 1)

    def even_out(self) -> None:
        """Move single partitions from the most loaded to members with at least two fewer, until no move is possible.

        A donor moves its last partition that has a receiver; of equal donors the first by name is first.
        """
        if not self._crowd_of:
            return
        low = self._loads[self._everyone.least_loaded()] + _WORTHWHILE
        self._donors = [(-load, member_id) for member_id, load in self._loads.items() if load >= low]
        heapq.heapify(self._donors)
        while self._donors:
            load, donor = heapq.heappop(self._donors)
            # The smallest load never becomes smaller, so no other donor has a receiver either.
            if -load - self._loads[self._everyone.least_loaded()] < _WORTHWHILE:
                return
            if -load == self._loads[donor]:
                self._let_give(donor)

    def _let_give(self, donor: str) -> None:
        """Make one move, or let the donor wait until one is possible."""
        load = self._loads[donor]
        ranked = self._ranks_of(donor)
        needy = [
            (ranks[0], crowd)
            for crowd, ranks in ranked.items()
            if ranks and load - self._loads[crowd.least_loaded()] >= _WORTHWHILE
        ]
        if not needy:
            for crowd in ranked:
                self._waiting.setdefault((load, crowd), set()).add(donor)
            return
        rank, crowd = min(needy)
        receiver = crowd.least_loaded()
        partition = TopicIdPartition(self._topics[-rank.topic], -rank.partition)
        heapq.heappop(ranked[crowd])
        if receiver in self._ranked:
            heapq.heappush(self._ranked[receiver].setdefault(crowd, []), rank)
        self._shares[donor].remove(partition)
        self._shares[receiver].add(partition)
        for member_id, change in ((donor, -1), (receiver, 1)):
            self._load(member_id, change)
            self._offer(member_id)
        # For a waiting donor with exactly this many more partitions, this member is now a receiver.
        for crowd in self._crowds_with(donor):
            for member_id in self._waiting.pop((self._loads[donor] + _WORTHWHILE, crowd), ()):
                self._offer(member_id)

    def _ranks_of(self, donor: str) -> dict[Crowd, list[_Rank]]:
        """Return the donor's partitions by crowd, the next one to move first."""
        if donor not in self._ranked:
            ranked = self._ranked[donor] = dict[Crowd, list[_Rank]]()
            for topic_id, number in self._shares[donor]:
                ranked.setdefault(self._crowd_of[topic_id], []).append(_Rank(-number, -self._number[topic_id]))
            for ranks in ranked.values():
                heapq.heapify(ranks)
        return self._ranked[donor]

    def _load(self, member_id: str, change: int) -> None:
        self._loads[member_id] += change
        for crowd in self._crowds_with(member_id):
            crowd.changed(member_id)

    def _crowds_with(self, member_id: str) -> list[Crowd]:
        if member_id not in self._crowds:
            self._crowds[member_id] = [crowd for crowd in self._all_crowds if member_id in crowd]
        return self._crowds[member_id]

    def _offer(self, member_id: str) -> None:
        heapq.heappush(self._donors, (-self._loads[member_id], member_id))


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
    order = {name: (each.instance_id is None, each.instance_id or each.member_id) for name, each in readers.items()}
    ordered: dict[tuple[str, ...], list[str]] = {}
    for topic_id, members in _subscribers(readers, counts).items():
        if members not in ordered:
            ordered[members] = sorted(members, key=order.__getitem__)
        start = 0
        # Without the members that are too many for one partition each.
        for index, member_id in enumerate(ordered[members][: counts[topic_id]]):
            size = counts[topic_id] // len(members) + (index < counts[topic_id] % len(members))
            shares[member_id].update(TopicIdPartition(topic_id, number) for number in range(start, start + size))
            start += size
    return shares


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}


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
