"""The encoder of Arrow columns into Kafka record batches, thousands of rows at a time.

`cut_batches` determines the rows of each batch. Then blocks of rows, of any batches, are encoded together, and a batch
is sliced out of the bytes of one or more blocks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from broker_core.records.compression import Bytes, Compression, compress
from broker_core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from broker_core.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from spark_eos.codec.columns import EncodeError
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.codec.record_columns import EncodedRows, RecordColumns, encode_rows, record_columns
from spark_eos.codec.varints import InlineBytes, Ints, encode_varints, ends_of, repeat_byte, varint_size, varint_sizes

LARGEST_SECTION_BYTES: Final = 2**31 - 1 - HEADER_SIZE
_LONGEST_VARINT: Final = 10
# Rows are encoded in blocks whose columns stay in a core's cache; numpy's cost per call rules out smaller ones.
_BLOCK_ROWS: Final = 8192
_BLOCK_BYTES: Final = 1024 * 1024


class BatchCuts(NamedTuple):
    """The boundaries of batches: batch `i` has the rows from `starts[i]` to `starts[i + 1]`.

    `fixed_ends` are the cumulative sums of the given sizes.
    """

    starts: Ints
    fixed_ends: Ints

    @property
    def counts(self) -> Ints:
        return np.diff(self.starts)


def cut_batches(fixed_sizes: Ints, timestamps: Ints | int, budget_bytes: int) -> BatchCuts:
    """Split rows into batches whose records take at most `budget_bytes`, before any is encoded.

    `fixed_sizes` are the sizes of the records without their length, timestamp delta and offset delta. These depend on
    where a batch begins, but only by a few bytes, so it is clear at once if all rows fit into one batch. A record that
    is larger than the budget gets its own batch. Raises `EncodeError` if that would be larger than 2 GiB.
    """
    count, ends = len(fixed_sizes), ends_of(fixed_sizes)
    if not count:
        return BatchCuts(np.zeros(1, np.int64), ends)
    later = _later_starts(fixed_sizes, ends, timestamps, min(budget_bytes, LARGEST_SECTION_BYTES))
    return BatchCuts(np.array([0, *later, count], np.int64), ends)


def offset_deltas(first: int, after: int) -> InlineBytes:
    """Return the varints of the numbers from `first` to `after`; every batch needs a part of the same column."""
    return _offset_deltas(1 << (after - 1).bit_length()).pick(slice(first, after))


@lru_cache(maxsize=2)
def _offset_deltas(capacity: int) -> InlineBytes:
    [pieces] = encode_varints(np.arange(capacity, dtype=np.int64))
    return pieces


def most_added(largest_bytes: int, most_rows: int, span_ms: int) -> int:
    """Return the maximum size of the fields that depend on the batch, in any record; numbers are not negative.

    A negative number of the same magnitude takes no more bytes.
    """
    deltas = varint_size(most_rows) + min(_LONGEST_VARINT, varint_size(span_ms))
    return deltas + varint_size(largest_bytes + deltas)


def _later_starts(fixed: Ints, ends: Ints, timestamps: Ints | int, budget: int) -> Iterator[int]:
    """Return where the batches begin, after the first."""
    start, stop = 0, len(fixed)
    span_ms = 0 if isinstance(timestamps, int) else int(timestamps.max()) - int(timestamps.min())
    added = most_added(int(fixed.max()), stop - 1, span_ms)
    while ends[stop] - ends[start] + (stop - start) * added > budget:
        # No more rows than these can fit.
        window = max(int(np.searchsorted(ends[start : stop + 1], ends[start] + budget, "right")) - 1, 1)
        lengths = fixed[start : start + window] + offset_deltas(0, window).sizes
        if isinstance(timestamps, int):
            lengths += 1
        else:
            lengths += varint_sizes(timestamps[start : start + window] - timestamps[start])
        record_ends = np.cumsum(lengths + varint_sizes(lengths))
        count = max(int(np.searchsorted(record_ends, budget, "right")), 1)
        size_bytes = int(record_ends[count - 1])
        if size_bytes > LARGEST_SECTION_BYTES:
            raise EncodeError(f"A record batch of {size_bytes} bytes exceeds the limit of Kafka's format (2 GiB)")
        start += count
        if start >= stop:
            return
        yield start


class _Block(NamedTuple):
    """Rows that were encoded together."""

    first: int
    after: int
    encoded: EncodedRows

    def between(self, first: int, after: int) -> memoryview:
        return self.encoded.between(max(first, self.first) - self.first, min(after, self.after) - self.first)


def encode_batches(
    *,
    key: Any,
    value: Any,
    headers: Any,
    timestamp_ms: Any,
    max_batch_bytes: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
) -> Iterator[EncodedBatch]:
    """Encode rows for one topic-partition, in order, as batches of at most `max_batch_bytes` before compression.

    `key` and `value` are Arrow arrays (or chunked arrays) of strings or bytes, `headers` of lists of (key, value)
    structs; `key` and `headers` may be None. `timestamp_ms` is an array of int64 milliseconds without nulls, or one
    number for all rows. A record that alone is larger than the limit makes a batch of its own, for the broker to judge.
    Raises `EncodeError` for columns that cannot become records.

    >>> import pyarrow as pa
    >>> [batch] = encode_batches(
    ...     key=None, value=pa.array(["a", None]), headers=None, timestamp_ms=0, max_batch_bytes=1000
    ... )
    >>> batch.record_count, batch.size_bytes
    (2, 76)
    """
    rows = record_columns(key, value, headers, timestamp_ms)
    return encode_columns(rows, max_batch_bytes, compression, level)


def encode_columns(
    rows: RecordColumns, max_batch_bytes: int, compression: Compression, level: int | None
) -> Iterator[EncodedBatch]:
    """Encode record columns as `encode_batches` does."""
    cuts = cut_batches(rows.fixed_sizes, rows.timestamps, max_batch_bytes - HEADER_SIZE)
    headings = zip(cuts.counts.tolist(), *_time_spans(rows.timestamps, cuts.starts), strict=True)
    for (count, base_ms, max_ms), parts in zip(headings, _sections(rows, cuts), strict=True):
        yield EncodedBatch(assemble(parts, count, base_ms, max_ms, compression, level), count, level)


def _time_spans(timestamps: Ints | int, starts: Ints) -> tuple[list[int], list[int]]:
    firsts = starts[:-1]
    if isinstance(timestamps, int):
        return ([timestamps] * len(firsts),) * 2
    if not len(firsts):
        return [], []
    return timestamps[firsts].tolist(), np.maximum.reduceat(timestamps, firsts).tolist()


def _sections(rows: RecordColumns, cuts: BatchCuts) -> Iterator[list[Bytes]]:
    """Slice the bytes of each batch's records out of the blocks."""
    blocks = _blocks(rows, cuts)
    starts = cuts.starts.tolist()
    block = None
    for first, after in pairwise(starts):
        if block is None or block.after == first:
            block = next(blocks)
        parts: list[Bytes] = [block.between(first, after)[rows.borrowed :]]
        while block.after < after:
            block = next(blocks)
            parts.append(block.between(first, after))
        parts.append(bytes(rows.borrowed))
        yield parts


def _blocks(rows: RecordColumns, cuts: BatchCuts) -> Iterator[_Block]:
    ends, total = cuts.fixed_ends, len(rows.fixed_sizes)
    after = 0
    while after < total:
        first = after
        fitting = int(np.searchsorted(ends, ends[first] + _BLOCK_BYTES, "right")) - 1
        after = min(first + _BLOCK_ROWS, max(fitting, first + 1), total)
        deltas = _deltas(rows.timestamps, cuts.starts, first, after)
        yield _Block(first, after, encode_rows(rows, first, after, deltas))


def _deltas(timestamps: Ints | int, batch_starts: Ints, first: int, after: int) -> list[InlineBytes]:
    """Return the columns that are relative to the beginning of a row's batch: times and offsets."""
    bases: Any
    oldest, next_one = int(batch_starts.searchsorted(first, "right")) - 1, int(batch_starts.searchsorted(after))
    if oldest + 1 == next_one:
        bases = int(batch_starts[oldest])
        offsets = offset_deltas(first - bases, after - bases)
    else:
        inside = batch_starts[oldest : next_one + 1].clip(first, after)
        bases = np.repeat(batch_starts[oldest:next_one], inside[1:] - inside[:-1])
        [offsets] = encode_varints(np.arange(first, after) - bases)
    if isinstance(timestamps, int):
        return [repeat_byte(0, after - first), offsets]
    # If timestamps are so far apart that their difference overflows 64 bits, it wraps, and wraps back in every reader.
    return [*encode_varints(timestamps[first:after] - timestamps[bases]), offsets]


def assemble(
    parts: Sequence[Bytes], count: int, base_ms: int, max_ms: int, compression: Compression, level: int | None
) -> bytearray:
    """Return a batch of encoded records, without what `seal` writes."""
    if compression is not Compression.NONE:
        parts = [compress(compression, b"".join(parts), level)]
    size_bytes = HEADER_SIZE + sum(map(len, parts))
    header = HEADER.pack(
        0,
        size_bytes - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        compression,
        count - 1,
        base_ms,
        max_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    # Joined, so that no byte is zeroed before it is written.
    return bytearray().join((header, *parts))


def split(batch: EncodedBatch) -> list[EncodedBatch]:
    """Return the batch's records as two unsealed batches, for a broker that found the whole too large.

    The batch is decoded again instead of kept as columns, so that batches in flight need no second copy of their data.
    Raises `ValueError` for a single record, which cannot be made smaller.
    """
    if batch.record_count < 2:
        raise ValueError("cannot split a batch of one record; raise max.message.bytes or write smaller records")
    # Imported here, because hardly any batch is too large.
    from spark_eos.codec.decode import decode_batches

    header = BatchHeader.parse(batch.data)
    columns = decode_batches(
        batch.data,
        [(0, header)],
        include_headers=True,
        first_offset=0,
        end_offset=batch.record_count,
        verify_crc=False,
    )
    middle = batch.record_count // 2
    return [
        encoded
        for half in (columns.slice(0, middle), columns.slice(middle))
        for encoded in encode_batches(
            key=half["key"],
            value=half["value"],
            headers=half["headers"],
            timestamp_ms=half["timestamp_ms"],
            max_batch_bytes=LARGEST_SECTION_BYTES,
            compression=header.compression,
            level=batch.level,
        )
    ]
