"""The encoder of Arrow columns into Kafka record batches, thousands of rows at a time.

A record is `length attributes timestamp_delta offset_delta key_length key value_length value header_count headers`, and
nearly all of its small fields are varints. Fields that do not depend on the batch are computed once for all rows; the
deltas, which do, with the rows of each pass.

A record without headers ends in a zero byte. That byte is written in front of the next record instead, which saves a
piece in the join; the first record's byte of a batch is then skipped and the last one's added.

`cut_batches` determines the rows of each batch. Then adjacent batches are encoded together, in passes, and sliced
out of the bytes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
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
# Encoded in one pass: large enough that the cost of a pass does not matter, small enough for a CPU cache.
_PASS_BYTES: Final = 2 * 1024 * 1024
# What a row takes in columns of numbers while it is encoded.
_ROW_BYTES: Final = 128


class RecordColumns(NamedTuple):
    """The columns of all rows, and the sizes of records without what depends on their batch."""

    key: ByteColumn | None
    value: ByteColumn
    headers: EncodedHeaders | None
    timestamps: Ints
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
            self.timestamps[rows],
            self.fixed_sizes[rows],
        )


def record_columns(key: Any, value: Any, headers: Any, timestamp_ms: Any) -> RecordColumns:
    """Convert the columns of `encode_batches` to record columns; raise `EncodeError` if they are not suitable."""
    values = binary_column(value, "value")
    keys = None if key is None else binary_column(key, "key")
    if keys is not None and keys.null_count == len(keys):
        keys = None
    encoded_headers = None if headers is None else encode_headers(one_array(headers))
    timestamps = _timestamps(timestamp_ms, len(values))
    for name, column in (("key", key), ("headers", headers), ("timestamp", timestamps)):
        if column is not None and len(column) != len(values):
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


def _timestamps(timestamp_ms: Any, count: int) -> Ints:
    if isinstance(timestamp_ms, int):
        return np.broadcast_to(np.int64(timestamp_ms), count)
    array = one_array(timestamp_ms)
    if array.null_count:
        raise EncodeError(
            f"The timestamp column has {counted(array.null_count, 'null timestamp')}; every record needs one"
        )
    if array.type != pa.int64():
        raise EncodeError(f"The timestamp column is of type {array.type}, expected int64 milliseconds")
    return numbers_of(array)


def passes(starts: Ints, stops: Ints, size_bytes: Ints) -> Iterator[slice]:
    """Yield which runs of rows are encoded together: adjacent ones, of about as many bytes as a cache holds."""
    group = np.cumsum(size_bytes + (stops - starts) * _ROW_BYTES) // _PASS_BYTES
    cuts = np.flatnonzero((np.diff(group) > 0) | (starts[1:] != stops[:-1])) + 1
    for first, after in pairwise([0, *cuts.tolist(), len(starts)]):
        if first < after:
            yield slice(first, after)


def encode_runs(
    rows: RecordColumns, starts: Ints, stops: Ints, firsts_ms: Ints, counts: Ints | int = 0
) -> tuple[memoryview, Ints]:
    """Encode adjacent runs of rows, one run for each batch; return the bytes, and where each run ends in them.

    A batch has `counts` records already, and the first of all has the time `firsts_ms`. Each record has the borrowed
    byte of the one before it in front, and lacks its own.
    """
    first, after, sizes = int(starts[0]), int(stops[-1]), stops - starts
    if rows.timestamps.strides == (0,) and (firsts_ms == rows.timestamps[0]).all():
        # One time for all rows, as without a column of times.
        deltas = [repeat_byte(0, after - first)]
    else:
        # If times are so far apart that their difference overflows 64 bits, it wraps, and wraps back in every reader.
        deltas = encode_varints(rows.timestamps[first:after] - np.repeat(firsts_ms, sizes))
    bases = starts - counts
    if len(sizes) == 1:
        deltas.append(offset_deltas(first - int(bases[0]), after - int(bases[0])))
    else:
        deltas += encode_varints(np.arange(first, after) - np.repeat(bases, sizes))
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
    ends = np.frombuffer(joined.buffers()[1], np.int32)[:: len(columns)][stops - first]
    return memoryview(joined.buffers()[2]), ends.astype(np.int64)


def cut_batches(fixed_sizes: Ints, timestamps: Ints, budget_bytes: int) -> list[int]:
    """Split rows into batches whose records take at most `budget_bytes`, before any is encoded: return their bounds.

    `fixed_sizes` are the sizes of the records without their length, timestamp delta and offset delta. These depend on
    where a batch begins, but only by a few bytes, so it is clear at once if all rows fit into one batch. A record that
    is larger than the budget gets its own batch. Raises `EncodeError` if that would be larger than 2 GiB.
    """
    count = len(fixed_sizes)
    if not count:
        return [0]
    return [0, *_later_starts(fixed_sizes, timestamps, min(budget_bytes, LARGEST_SECTION_BYTES)), count]


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


def _later_starts(fixed: Ints, timestamps: Ints, budget: int) -> Iterator[int]:
    start, stop, ends = 0, len(fixed), ends_of(fixed)
    span_ms = int(timestamps.max()) - int(timestamps.min())
    added = most_added(int(fixed.max()), stop - 1, span_ms)
    while ends[stop] - ends[start] + (stop - start) * added > budget:
        # No more rows than these can fit.
        window = max(int(np.searchsorted(ends[start : stop + 1], ends[start] + budget, "right")) - 1, 1)
        lengths = fixed[start : start + window] + offset_deltas(0, window).sizes
        lengths += varint_sizes(timestamps[start : start + window] - timestamps[start]) if span_ms else 1
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
    bounds = cut_batches(rows.fixed_sizes, rows.timestamps, max_batch_bytes - HEADER_SIZE)
    return encode_columns(rows, bounds, compression, level)


def encode_columns(
    rows: RecordColumns, bounds: Sequence[int], compression: Compression, level: int | None
) -> Iterator[EncodedBatch]:
    starts, stops, ends = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64), ends_of(rows.fixed_sizes)
    for some in passes(starts, stops, ends[stops] - ends[starts]):
        firsts_ms, counts = rows.timestamps[starts[some]], stops[some] - starts[some]
        lasts_ms = np.maximum.reduceat(rows.timestamps[: bounds[some.stop]], starts[some])
        data, run_ends = encode_runs(rows, starts[some], stops[some], firsts_ms)
        begin = 0
        for count, first_ms, last_ms, end in np.column_stack([counts, firsts_ms, lasts_ms, run_ends]).tolist():
            parts: list[Bytes] = [data[begin + rows.borrowed : end], bytes(rows.borrowed)]
            yield EncodedBatch(assemble(parts, count, first_ms, last_ms, compression, level), count, level)
            begin = end


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
