"""The encoder of Arrow columns into Kafka record batches, thousands of rows at a time.

A record is `length attributes timestamp_delta offset_delta key_length key value_length value header_count headers`, and
nearly all of its small fields are varints. Fields that do not depend on the batch are computed once for all rows; the
deltas, which do, are given for the rows to be encoded.

A record without headers ends in a zero byte. That byte is written in front of the next record instead, which saves a
piece in the join; the first record's byte of a batch is then skipped and the last one's added.

`cut_batches` determines the rows of each batch. Then blocks of rows, of any batches, are encoded together, and a batch
is sliced out of the bytes of one or more blocks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker_core.records.compression import Bytes, Compression, compress
from broker_core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from broker_core.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, counted
from spark_eos.codec.arrow_numbers import numbers_of
from spark_eos.codec.columns import ByteColumn, EncodeError, binary_column, join, merge, one_array
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.codec.header_column import EncodedHeaders, encode_headers
from spark_eos.codec.varints import InlineBytes, Ints, encode_varints, ends_of, repeat_byte, varint_size, varint_sizes

_ATTRIBUTES_BYTES: Final = 1
# The varint of a length of -1.
_NO_KEY: Final = 1
LARGEST_SECTION_BYTES: Final = 2**31 - 1 - HEADER_SIZE
_LONGEST_VARINT: Final = 10
# Rows are encoded in blocks whose columns stay in a core's cache; numpy's cost per call rules out smaller ones.
_BLOCK_ROWS: Final = 8192
_BLOCK_BYTES: Final = 1024 * 1024


class RecordColumns(NamedTuple):
    """The columns of all rows, and the sizes of records without what depends on their batch."""

    key: ByteColumn | None
    value: ByteColumn
    headers: EncodedHeaders | None
    timestamps: Ints | int
    fixed_sizes: Ints

    @property
    def borrowed(self) -> int:
        """Return how many bytes of each record are written in front of the next one."""
        return 1 if self.headers is None else 0

    def pick(self, rows: slice) -> "RecordColumns":
        return RecordColumns(
            None if self.key is None else self.key.pick(rows),
            self.value.pick(rows),
            None if self.headers is None else self.headers.pick(rows),
            self.timestamps if isinstance(self.timestamps, int) else self.timestamps[rows],
            self.fixed_sizes[rows],
        )


class EncodedRows(NamedTuple):
    """The encoded records of the rows from `first` to `after`: where each begins, and where the last one ends.

    Each has the borrowed byte of the one before it in front, and lacks its own.
    """

    first: int
    after: int
    data: memoryview
    bounds: npt.NDArray[np.int32]

    def between(self, first: int, after: int) -> memoryview:
        """Return the bytes of the given rows that are here."""
        start, stop = max(first, self.first) - self.first, min(after, self.after) - self.first
        return self.data[self.bounds[start] : self.bounds[stop]]


def record_columns(key: Any, value: Any, headers: Any, timestamp_ms: Any) -> RecordColumns:
    """Convert the columns of `encode_batches` to record columns; raise `EncodeError` if they are not suitable."""
    values = binary_column(value, "value")
    keys = None if key is None else binary_column(key, "key")
    if keys is not None and keys.null_count == len(keys):
        keys = None
    encoded_headers = None if headers is None else encode_headers(one_array(headers))
    timestamps = _timestamps(timestamp_ms)
    for name, column in (("key", key), ("headers", headers), ("timestamp", timestamps)):
        if column is not None and not isinstance(column, int) and len(column) != len(values):
            raise EncodeError(
                f"The {name} column has {counted(len(column), 'row')}, the value column has {len(values)}"
            )
    value_column, key_column = ByteColumn.of(values), None if keys is None else ByteColumn.of(keys)
    sizes = _field_sizes(value_column)
    sizes += _ATTRIBUTES_BYTES + (1 if encoded_headers is None else encoded_headers.sizes)
    sizes += 1 if key_column is None else _field_sizes(key_column)
    return RecordColumns(key_column, value_column, encoded_headers, timestamps, sizes)


def _field_sizes(column: ByteColumn) -> Ints:
    sizes = varint_sizes(column.lengths)
    sizes += np.maximum(column.lengths, 0)
    return sizes


def _timestamps(timestamp_ms: Any) -> Ints | int:
    if isinstance(timestamp_ms, int):
        return timestamp_ms
    array = one_array(timestamp_ms)
    if array.null_count:
        raise EncodeError(
            f"The timestamp column has {counted(array.null_count, 'null timestamp')}; every record needs one"
        )
    if array.type != pa.int64():
        raise EncodeError(f"The timestamp column is of type {array.type}, expected int64 milliseconds")
    return numbers_of(array)


def encode_rows(rows: RecordColumns, first: int, after: int, deltas: list[InlineBytes]) -> EncodedRows:
    rows = rows.pick(slice(first, after))
    lengths = rows.fixed_sizes.copy()
    for column in deltas:
        lengths += column.sizes
    [length] = encode_varints(lengths)
    # The attributes byte is zero, so it is already present in the word above the length.
    added = rows.borrowed + _ATTRIBUTES_BYTES
    opening = InlineBytes(length.words << np.uint64(8 * rows.borrowed), length.sizes + added, length.longest + added)
    prefix = [opening, *deltas]
    [value_length] = encode_varints(rows.value.lengths)
    columns: list[InlineBytes | ByteColumn]
    if rows.key is None:
        no_key = repeat_byte(_NO_KEY, after - first)
        columns = [*merge([*prefix, no_key, value_length]), rows.value]
    else:
        columns = [*merge([*prefix, *encode_varints(rows.key.lengths)]), rows.key, value_length, rows.value]
    if rows.headers is not None:
        columns += [rows.headers.counts, rows.headers.bytes]
    joined = join(columns)
    bounds = np.frombuffer(joined.buffers()[1], np.int32)[:: len(columns)]
    return EncodedRows(first, after, memoryview(joined.buffers()[2]), bounds)


class BatchCuts(NamedTuple):
    """The boundaries of batches: batch `i` has the rows from `starts[i]` to `starts[i + 1]`.

    `fixed_ends` are the cumulative sums of the given sizes.
    """

    starts: Ints
    fixed_ends: Ints


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
    cuts = cut_batches(rows.fixed_sizes, rows.timestamps, max_batch_bytes - HEADER_SIZE)
    headings = zip(np.diff(cuts.starts).tolist(), *_time_spans(rows.timestamps, cuts.starts), strict=True)
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


def _blocks(rows: RecordColumns, cuts: BatchCuts) -> Iterator[EncodedRows]:
    ends, total = cuts.fixed_ends, len(rows.fixed_sizes)
    after = 0
    while after < total:
        first = after
        fitting = int(np.searchsorted(ends, ends[first] + _BLOCK_BYTES, "right")) - 1
        after = min(first + _BLOCK_ROWS, max(fitting, first + 1), total)
        deltas = _deltas(rows.timestamps, cuts.starts, first, after)
        yield encode_rows(rows, first, after, deltas)


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
    from spark_eos.codec.decode import decode_slabs

    header = BatchHeader.parse(batch.data)
    columns = pa.Table.from_batches(
        decode_slabs(batch.data, [(0, header)], include_headers=True, first_offset=0, end_offset=batch.record_count)
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
