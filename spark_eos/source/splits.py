"""The parts of offset ranges that Spark's tasks read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition, and what the driver knew about their place.

    The topic id lets a task detect that the topic was deleted and created again since the plan; the leader is a hint,
    and the task looks for another if it has moved. `end_epoch` is the epoch of the leader that returned the end: a task
    that reads from a newer one asks it whether the log still reaches that far (-1: the end comes from the user, or from
    a checkpoint, which has no epochs).
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    leader_id: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    end_epoch: int = NO_LEADER_EPOCH

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Return the number of offsets; there can be fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Drop empty ranges, limit each to `max_records` offsets, then split until there are about `min_partitions`."""
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = list(_reach(pieces, min_partitions))
    return pieces


def _reach(pieces: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    """Split large ranges in proportion to their size; ranges too small to split do not affect the others' shares."""
    total = sum(piece.size for piece in pieces)
    whole = {piece for piece in pieces if _share(piece.size, total, wanted) == 1}
    rest = total - sum(piece.size for piece in whole)
    shares = max(wanted - len(whole), 1)
    for piece in pieces:
        yield from [piece] if piece in whole else _cut(piece, _share(piece.size, rest, shares))


def _share(size: int, total: int, wanted: int) -> int:
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(piece: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Split into `count` parts whose sizes differ by one at most; fewer if there are not as many offsets."""
    count = min(count, piece.size)
    bounds = [piece.start + piece.size * part // count for part in range(count + 1)]
    for start, end in pairwise(bounds):
        if end > start:
            yield replace(piece, start=start, end=end)
