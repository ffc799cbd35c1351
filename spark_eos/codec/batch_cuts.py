"""Find which rows make a batch, before one is encoded.

How large a record becomes depends on where its batch begins: offsets and timestamps count from there. But only by a few
bytes, so most groups of rows show at once that all of them fit a batch. The others are cut one batch after the other.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from broker_core.records.header import HEADER_SIZE
from spark_eos.codec.columns import EncodeError
from spark_eos.codec.varints import Ints, Pieces, varint_pieces, varint_size, varint_sizes

LARGEST_SECTION_BYTES: Final = 2**31 - 1 - HEADER_SIZE
_LONGEST_VARINT: Final = 10


class BatchCuts(NamedTuple):
    """Hold where batches begin: batch `i`, of group `groups[i]`, has the rows from `starts[i]` to `starts[i + 1]`.

    The sizes that were given, summed up, are `fixed_ends`.
    """

    starts: Ints
    groups: Ints
    fixed_ends: Ints

    @property
    def counts(self) -> Ints:
        """Return how many rows each batch has."""
        return self.starts[1:] - self.starts[:-1]


class _Sizes(NamedTuple):
    """Hold what is known of the sizes of records, but for their fields that depend on the batch."""

    fixed: Ints
    ends: Ints
    most_added: int
    timestamps: Ints | int
    budget_bytes: int


def cut_batches(fixed_sizes: Ints, timestamps: Ints | int, boundaries: Ints, budget_bytes: int) -> BatchCuts:
    """Cut groups of rows, which lie between `boundaries`, into batches whose records take `budget_bytes` at most.

    `fixed_sizes` are the sizes of the records without their length, timestamp delta and offset delta. A record that is
    larger than the budget makes a batch of its own. Raises `EncodeError` when that would be larger than 2 GiB.
    """
    ends = np.zeros(len(fixed_sizes) + 1, np.int64)
    np.cumsum(fixed_sizes, out=ends[1:])
    counts = np.diff(boundaries)
    if not len(fixed_sizes):
        return BatchCuts(boundaries[:1], np.empty(0, np.int64), ends)
    sizes = _Sizes(
        fixed_sizes,
        ends,
        _most_added(fixed_sizes, timestamps, int(counts.max())),
        timestamps,
        min(budget_bytes, LARGEST_SECTION_BYTES),
    )
    firsts, lasts = boundaries[:-1], boundaries[1:]
    starts = firsts[counts > 0]
    too_many = np.flatnonzero(ends[lasts] - ends[firsts] + counts * sizes.most_added > sizes.budget_bytes)
    added = [
        start for group in too_many.tolist() for start in _cuts_within(sizes, int(firsts[group]), int(lasts[group]))
    ]
    if added:
        starts = np.sort(np.concatenate([starts, np.array(added, np.int64)]))
    return BatchCuts(np.append(starts, boundaries[-1]), np.searchsorted(boundaries, starts, "right") - 1, ends)


def offset_deltas(first: int, after: int) -> Pieces:
    """Return the varints of the numbers from `first` to `after`; every batch needs a part of the same column."""
    return _offset_deltas(1 << (after - 1).bit_length()).pick(slice(first, after))


@lru_cache(maxsize=2)
def _offset_deltas(capacity: int) -> Pieces:
    [pieces] = varint_pieces(np.arange(capacity, dtype=np.int64))
    return pieces


def _most_added(fixed_sizes: Ints, timestamps: Ints | int, most_rows: int) -> int:
    """Return how many bytes the fields that depend on the batch can take in any record."""
    deltas = varint_size(most_rows - 1)
    if isinstance(timestamps, int):
        deltas += 1
    else:
        # A negative number as large takes no more bytes.
        span = int(timestamps.max()) - int(timestamps.min())
        deltas += varint_size(span) if span < 2**63 else _LONGEST_VARINT
    return deltas + varint_size(int(fixed_sizes.max()) + deltas)


def _cuts_within(sizes: _Sizes, start: int, stop: int) -> Iterator[int]:
    """Find where the batches of one group begin, after the first."""
    ends, budget = sizes.ends, sizes.budget_bytes
    while True:
        left = stop - start
        if ends[stop] - ends[start] + left * sizes.most_added <= budget:
            return
        # No more rows than these can fit.
        window = int(np.searchsorted(ends[start : stop + 1], ends[start] + budget, "right")) - 1
        window = max(window, 1)
        lengths = sizes.fixed[start : start + window] + offset_deltas(0, window).sizes
        if isinstance(sizes.timestamps, int):
            lengths += 1
        else:
            lengths += varint_sizes(sizes.timestamps[start : start + window] - sizes.timestamps[start])
        record_ends = np.cumsum(lengths + varint_sizes(lengths))
        count = max(int(np.searchsorted(record_ends, budget, "right")), 1)
        size_bytes = int(record_ends[count - 1])
        if size_bytes > LARGEST_SECTION_BYTES:
            raise EncodeError(f"a record batch of {size_bytes} bytes is more than Kafka's format can hold (2 GiB)")
        start += count
        if start >= stop:
            return
        yield start
