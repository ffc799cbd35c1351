"""The choice of the rows of each batch, before any is encoded.

The size of a record depends on where its batch begins, because offsets and timestamps are relative to that. But it
depends only by a few bytes, so it is clear at once if all rows fit into one batch. Otherwise they are split one batch
after the other.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from broker_core.records.header import HEADER_SIZE
from spark_eos.codec.columns import EncodeError
from spark_eos.codec.varints import InlineBytes, Ints, encode_varints, varint_size, varint_sizes

LARGEST_SECTION_BYTES: Final = 2**31 - 1 - HEADER_SIZE
_LONGEST_VARINT: Final = 10


class BatchCuts(NamedTuple):
    """The boundaries of batches: batch `i` has the rows from `starts[i]` to `starts[i + 1]`.

    `fixed_ends` are the cumulative sums of the given sizes.
    """

    starts: Ints
    fixed_ends: Ints

    @property
    def counts(self) -> Ints:
        return self.starts[1:] - self.starts[:-1]


class _Sizes(NamedTuple):
    """The known sizes of records, without the fields that depend on the batch."""

    fixed: Ints
    ends: Ints
    most_added: int
    timestamps: Ints | int
    budget_bytes: int


def cut_batches(fixed_sizes: Ints, timestamps: Ints | int, budget_bytes: int) -> BatchCuts:
    """Split rows into batches whose records take at most `budget_bytes`.

    `fixed_sizes` are the sizes of the records without their length, timestamp delta and offset delta. A record that is
    larger than the budget gets its own batch. Raises `EncodeError` if that would be larger than 2 GiB.
    """
    count = len(fixed_sizes)
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(fixed_sizes, out=ends[1:])
    if not count:
        return BatchCuts(np.zeros(1, np.int64), ends)
    most_added = _most_added(fixed_sizes, timestamps, count)
    sizes = _Sizes(fixed_sizes, ends, most_added, timestamps, min(budget_bytes, LARGEST_SECTION_BYTES))
    return BatchCuts(np.array([0, *_later_starts(sizes, count), count], np.int64), ends)


def offset_deltas(first: int, after: int) -> InlineBytes:
    """Return the varints of the numbers from `first` to `after`; every batch needs a part of the same column."""
    return _offset_deltas(1 << (after - 1).bit_length()).pick(slice(first, after))


@lru_cache(maxsize=2)
def _offset_deltas(capacity: int) -> InlineBytes:
    [pieces] = encode_varints(np.arange(capacity, dtype=np.int64))
    return pieces


def _most_added(fixed_sizes: Ints, timestamps: Ints | int, most_rows: int) -> int:
    """Return the maximum size of the fields that depend on the batch, in any record."""
    deltas = varint_size(most_rows - 1)
    if isinstance(timestamps, int):
        deltas += 1
    else:
        # A negative number of the same magnitude takes no more bytes.
        span = int(timestamps.max()) - int(timestamps.min())
        deltas += varint_size(span) if span < 2**63 else _LONGEST_VARINT
    return deltas + varint_size(int(fixed_sizes.max()) + deltas)


def _later_starts(sizes: _Sizes, stop: int) -> Iterator[int]:
    """Return where the batches begin, after the first."""
    start, ends, budget = 0, sizes.ends, sizes.budget_bytes
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
            raise EncodeError(f"A record batch of {size_bytes} bytes exceeds the limit of Kafka's format (2 GiB)")
        start += count
        if start >= stop:
            return
        yield start
