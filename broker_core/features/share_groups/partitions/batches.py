"""The in-flight batches of a share partition, ordered by offset."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from broker_core.features.share_groups.partitions.in_flight import InFlight, InFlightBatch


class InFlightBatches:
    """Disjoint batches by first offset."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts)

    @property
    def first_offset(self) -> int:
        """Return the first offset of the first batch."""
        return self._firsts[0]

    @property
    def last_offset(self) -> int:
        """Return the last offset of the last batch."""
        return self._batches[self._firsts[-1]].last_offset

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch, replacing the one with the same first offset."""
        if batch.first_offset not in self._batches:
            insort(self._firsts, batch.first_offset)
        self._batches[batch.first_offset] = batch

    def at_or_before(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at the offset or before it."""
        index = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[index - 1]] if index else None

    def beginning_within(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches whose first offset is in a range."""
        low, high = bisect_left(self._firsts, first_offset), bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[low:high]]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches with an offset in a range."""
        before = self.at_or_before(first_offset)
        low = first_offset if before is None or before.last_offset < first_offset else before.first_offset
        return self.beginning_within(low, last_offset)

    def drop_done(self) -> int | None:
        """Remove the leading batches that are done; return the first offset that is not done, None if none is done.

        A batch that is done in part stays.
        """
        last_done: int | None = None
        drop = 0
        for batch in self:
            done = 0
            for _, last, each in batch.parts():
                if not each.state.is_terminal:
                    break
                last_done, done = last, last - batch.first_offset + 1
            if done < batch.size:
                break
            drop += 1
        if last_done is None:
            return None
        for first in self._firsts[:drop]:
            del self._batches[first]
        del self._firsts[:drop]
        # Offsets between batches have no records: compaction has removed them.
        is_split = bool(self._firsts) and self._firsts[0] <= last_done
        return last_done + 1 if is_split or not self._firsts else self._firsts[0]

    def parts(self) -> Iterator[tuple[int, int, InFlight]]:
        """Yield ranges of offsets with their states."""
        for batch in self:
            yield from batch.parts()
