"""The delivery state of the records of a share partition that are in flight.

A batch of offsets has one state as long as all its records have the same one. Otherwise each offset has its own. The
allowed changes are those of KIP-932: available records are acquired, and acquired ones become available again, are
acknowledged, or are archived.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

NO_MEMBER: Final = ""


class RecordState(IntEnum):
    """The delivery states, numbered as in Kafka's requests and records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Return whether the record is never delivered again."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(slots=True, eq=False)
class InFlight:
    """The state of one record, or of all records of a batch.

    `lock_until_ms` is the time until which its member may acknowledge an acquired record.
    """

    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    lock_until_ms: int | None = None

    def copy(self) -> "InFlight":
        return InFlight(self.state, self.delivery_count, self.member_id, self.lock_until_ms)

    def restore(self, before: "InFlight") -> None:
        """Return to an earlier state: the change could not be persisted."""
        self.state, self.delivery_count = before.state, before.delivery_count
        self.member_id, self.lock_until_ms = before.member_id, before.lock_until_ms

    def acquire(self, member_id: str, lock_until_ms: int) -> None:
        """Give the record to a member; the delivery counts."""
        assert self.state is RecordState.AVAILABLE
        self.state, self.member_id, self.lock_until_ms = RecordState.ACQUIRED, member_id, lock_until_ms
        self.delivery_count += 1

    def finish(self, state: RecordState, delivery_limit: int) -> None:
        """End the acquisition; a record that was delivered as often as allowed is archived instead of released."""
        if state is RecordState.AVAILABLE and self.delivery_count >= delivery_limit:
            state = RecordState.ARCHIVED
        self.state, self.member_id, self.lock_until_ms = state, NO_MEMBER, None

    def archive(self) -> None:
        self.state, self.member_id, self.lock_until_ms = RecordState.ARCHIVED, NO_MEMBER, None


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A range of offsets: one state for all, or `offsets` with one for each."""

    first_offset: int
    last_offset: int
    whole: InFlight
    offsets: dict[int, InFlight] | None = None

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split(self) -> dict[int, InFlight]:
        """Give each offset a state of its own, and return them."""
        if self.offsets is None:
            self.offsets = {offset: self.whole.copy() for offset in range(self.first_offset, self.last_offset + 1)}
        return self.offsets

    def split_at(self, last_acquired: int) -> None:
        """Give each offset a state of its own; those behind `last_acquired` are not acquired after all."""
        for offset, each in self.split().items():
            if offset > last_acquired:
                each.restore(InFlight(RecordState.AVAILABLE, self.whole.delivery_count - 1))

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def parts(self) -> Iterator[tuple[int, int, InFlight]]:
        if self.offsets is None:
            yield self.first_offset, self.last_offset, self.whole
        else:
            for offset, each in self.offsets.items():
                yield offset, offset, each


class InFlightBatches:
    """The in-flight batches of a share partition: disjoint, ordered by offset."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts)

    @property
    def first_offset(self) -> int:
        return self._firsts[0]

    @property
    def last_offset(self) -> int:
        return self._batches[self._firsts[-1]].last_offset

    def add(self, batch: InFlightBatch) -> None:
        if batch.first_offset not in self._batches:
            insort(self._firsts, batch.first_offset)
        self._batches[batch.first_offset] = batch

    def at_or_before(self, offset: int) -> InFlightBatch | None:
        index = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[index - 1]] if index else None

    def beginning_within(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        low, high = bisect_left(self._firsts, first_offset), bisect_right(self._firsts, last_offset)
        return [self._batches[first] for first in self._firsts[low:high]]

    def overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
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
        for batch in self:
            yield from batch.parts()
