"""The fates of transactions according to the partitions' logs.

Each transaction is searched in one of its partitions, and in another one if that is inconclusive; those in the same
partition by the same fetches, and all partitions at once. The search continues while each round finds something.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final
from uuid import UUID

from broker_core.types import TopicPartition
from spark_eos.errors import TopicError
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange, ids_of_topics
from spark_eos.sink.protocol.action_table import Fate
from spark_eos.sink.protocol.answers import CommittedView
from spark_eos.sink.protocol.asks import ReplacedTopics, UnstableEnds, Views

LOOK_MS: Final = 1_000
# This many partitions that cannot be read yet are enough for one round.
_MOST_HIDDEN: Final = 3


@dataclass(slots=True)
class _Search:
    """The search for one transaction, in one of its partitions after the other."""

    transaction: PreparedTransaction
    left: list[WrittenRange]
    hidden: int = 0
    fate: Fate | None = None

    @property
    def written(self) -> WrittenRange:
        return self.left[0]

    def conclude(self, fate: Fate | None) -> None:
        self.fate = fate
        if fate is None:
            self.left.pop(0)
            if not self.left:
                self.fate = Fate.HIDDEN if self.hidden else Fate.UNKNOWN

    def hide(self) -> None:
        self.hidden += 1
        self.conclude(Fate.HIDDEN if self.hidden >= _MOST_HIDDEN else None)


async def logged_fates(transactions: Collection[PreparedTransaction]) -> dict[PreparedTransaction, Fate]:
    """Return the fates of transactions; hidden is what cannot be read yet, unknown what no longer exists.

    A topic that was deleted and created again is not searched: other records have the offsets there.
    """
    replaced = await _replaced_topics(ids_of_topics(transactions), transactions)
    searches = [_search(each, at, replaced) for at, each in enumerate(transactions)]
    while left := [each for each in searches if each.fate is None]:
        before = sum(len(each.left) for each in left)
        await _look(left)
        if sum(len(each.left) for each in searches if each.fate is None) == before:
            for each in left:
                each.conclude(Fate.HIDDEN)
    return {each.transaction: each.fate or Fate.HIDDEN for each in searches}


async def _replaced_topics(ids: dict[str, set[UUID]], transactions: Collection[PreparedTransaction]) -> Collection[str]:
    try:
        return await ReplacedTopics(ids, [each.transactional_id for each in transactions]) if ids else ()
    except TopicError:
        # One is gone, which its search finds out. The others may have been made again.
        alone = ({topic: found} for topic, found in ids.items() if len(ids) > 1)
        return {topic for each in alone for topic in await _replaced_topics(each, transactions)}


def _search(transaction: PreparedTransaction, at: int, replaced: Collection[str]) -> _Search:
    """Begin at a different partition each time: tasks write to the same ones in the same order."""
    ranges = [each for each in transaction.ranges if each.topic not in replaced]
    first = at % max(1, len(ranges))
    left = [*ranges[first:], *ranges[:first]]
    return _Search(transaction, left, fate=None if left else Fate.UNKNOWN)


async def _look(searches: Iterable[_Search]) -> None:
    queues: dict[TopicPartition, list[_Search]] = {}
    for each in searches:
        queues.setdefault(each.written.place, []).append(each)
    for queue in queues.values():
        queue.sort(key=attrgetter("written.first_offset"))
    views = await Views({place: queue[0].written.first_offset for place, queue in queues.items()}, wait_ms=LOOK_MS)
    for place, queue in queues.items():
        if place not in views:
            for each in queue:
                each.hide()
            continue
        view = views[place]
        if view is None:
            queue[0].conclude(None)
            continue
        readable = [each for each in queue if each.written.last_offset < view.last_stable_offset]
        # Under the old protocol the coordinator does not distinguish a timeout from a later abort, and the transactions
        # of the same micro-batch that are still open block committed readers.
        unstable = [each for each in queue if each.written.last_offset >= view.last_stable_offset]
        if unstable:
            await _look_behind(place, unstable)
        # What the fetch has not reached is left for the next one.
        reached = view.batches[-1].last_offset if view.batches else -1
        for each in readable:
            if each.written.first_offset <= reached:
                each.conclude(seen_fate(each.transaction, each.written, view))


async def _look_behind(place: TopicPartition, searches: Collection[_Search]) -> None:
    # One of each producer at a time.
    by_producer = {each.transaction.producer.producer_id: each for each in searches}
    offsets = {producer_id: each.written.last_offset for producer_id, each in by_producer.items()}
    ends = await UnstableEnds(place, offsets, wait_ms=LOOK_MS)
    for producer_id, each in by_producer.items():
        is_committed = ends.get(producer_id)
        if is_committed is None:
            each.hide()
        else:
            each.conclude(Fate.COMMITTED if is_committed else Fate.LOST)


def seen_fate(transaction: PreparedTransaction, written: WrittenRange, view: CommittedView | None) -> Fate | None:
    """Return the fate according to one fetch, or None if the records are gone or the end is not yet written."""
    if view is None or view.last_stable_offset <= written.last_offset:
        return None
    if any(a == (transaction.producer.producer_id, written.first_offset) for a in view.aborted):
        return Fate.LOST
    shown = any(
        b.producer == transaction.producer and b.first_offset <= written.first_offset <= b.last_offset
        for b in view.batches
    )
    return Fate.COMMITTED if shown else None
