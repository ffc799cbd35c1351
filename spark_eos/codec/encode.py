"""Encode Arrow columns into Kafka record batches, a batch at a time and never a row at a time.

A record is `length attributes timestamp_delta offset_delta key_length key value_length value header_count headers`, and
nearly all of its small fields are varints. The sizes that do not depend on the batch are computed once for all rows.
Each batch then takes a window of rows that could fit, computes the sizes that do depend on it (offset deltas restart,
timestamps count from the batch's first), cuts the window where the limit falls, lays the small fields out as one short
prefix for each row, and lets Arrow join prefixes, keys and values: the data of the result is the records section.

A record without headers ends in a zero byte. That byte is written in front of the next record's prefix instead, which
saves a column in the join; the first record's is then skipped and the last one's added.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.records.compression import Compression, compress
from broker_core.records.header import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from broker_core.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from spark_eos.codec.columns import EncodeError, binary_column, lengths_of, one_array
from spark_eos.codec.decode import decode_batches
from spark_eos.codec.header_column import EncodedHeaders, encode_headers
from spark_eos.codec.varints import Ints, Pieces, lay, varint_pieces, varint_sizes

_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")
_LARGEST_SECTION_BYTES: Final = 2**31 - 1 - HEADER_SIZE
_JOIN: Final = pc.JoinOptions(null_handling="replace", null_replacement="")
# attributes, and at least one byte each of length, timestamp delta and offset delta.
_ATTRIBUTES_BYTES: Final = 1
_LEAST_PREFIX_BYTES: Final = 3


@dataclass(slots=True)
class EncodedBatch:
    """Hold one whole record batch; its producer fields and CRC are unset until `seal`."""

    data: bytearray
    record_count: int
    level: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return the size of the batch as it goes to the broker, header included."""
        return len(self.data)


@dataclass(slots=True)
class _Rows:
    """Hold what all batches share: the columns, and each row's sizes that no batch changes."""

    key: Any
    value: Any
    headers: EncodedHeaders | None
    timestamps: Ints | int
    key_pieces: Pieces
    value_pieces: Pieces
    fixed_sizes: Ints
    least_ends: Ints


@dataclass(slots=True)
class _Section:
    """Hold one batch's rows, once it is known where they end."""

    start: int
    count: int
    size_bytes: int
    prefix: list[Pieces]


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

    >>> [batch] = encode_batches(
    ...     key=None, value=pa.array(["a", None]), headers=None, timestamp_ms=0, max_batch_bytes=1000
    ... )
    >>> batch.record_count, batch.size_bytes
    (2, 76)
    """
    rows = _prepare(key, value, headers, timestamp_ms)
    total = len(rows.value)
    start = 0
    while start < total:
        section = _next_section(rows, start, max_batch_bytes - HEADER_SIZE)
        yield EncodedBatch(_assemble(rows, section, compression, level), section.count, level)
        start += section.count


def _prepare(key: Any, value: Any, headers: Any, timestamp_ms: Any) -> _Rows:
    values = binary_column(value, "value")
    keys = None if key is None else binary_column(key, "key")
    if keys is not None and keys.null_count == len(keys):
        keys = None
    encoded_headers = None if headers is None else encode_headers(one_array(headers))
    timestamps = _timestamps(timestamp_ms)
    for name, column in (("key", key), ("headers", headers), ("timestamp", timestamps)):
        if column is not None and not isinstance(column, int) and len(column) != len(values):
            raise EncodeError(f"the {name} column has {len(column)} rows, the value column {len(values)}")
    key_lengths = np.full(len(values), -1, np.int64) if keys is None else lengths_of(keys)
    value_lengths = lengths_of(values)
    [key_pieces] = varint_pieces(key_lengths)
    [value_pieces] = varint_pieces(value_lengths)
    fixed = key_pieces.sizes + value_pieces.sizes + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    fixed += _ATTRIBUTES_BYTES + (1 if encoded_headers is None else encoded_headers.sizes)
    least_ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(fixed + _LEAST_PREFIX_BYTES, out=least_ends[1:])
    return _Rows(keys, values, encoded_headers, timestamps, key_pieces, value_pieces, fixed, least_ends)


def _timestamps(timestamp_ms: Any) -> Ints | int:
    if isinstance(timestamp_ms, int):
        return timestamp_ms
    array = one_array(timestamp_ms)
    if array.null_count:
        raise EncodeError(f"{array.null_count} timestamps are null; give every record a time")
    if array.type != pa.int64():
        raise EncodeError(f"the timestamp column is of type {array.type}, expected int64 milliseconds")
    stamps: Ints = array.to_numpy()
    return stamps


def _next_section(rows: _Rows, start: int, budget_bytes: int) -> _Section:
    """Find how many rows from `start` fit the budget, at least one, with their prefixes."""
    least_ends = rows.least_ends
    window = int(np.searchsorted(least_ends, least_ends[start] + budget_bytes, "right")) - 1 - start
    window = max(window, 1)
    stop = start + window
    deltas = _offset_deltas(_capacity(window)).slice(0, window)
    stamps = _timestamp_deltas(rows.timestamps, start, stop)
    lengths = rows.fixed_sizes[start:stop] + deltas.sizes
    for column in stamps:
        lengths += column.sizes
    ends = np.cumsum(lengths + varint_sizes(lengths))
    count = max(int(np.searchsorted(ends, budget_bytes, "right")), 1)
    size_bytes = int(ends[count - 1])
    if size_bytes > _LARGEST_SECTION_BYTES:
        raise EncodeError(f"a record batch of {size_bytes} bytes is more than Kafka's format can hold (2 GiB)")
    [length] = varint_pieces(lengths[:count])
    return _Section(start, count, size_bytes, [length, *(p.slice(0, count) for p in stamps), deltas.slice(0, count)])


def _capacity(rows: int) -> int:
    return 1 << (rows - 1).bit_length()


@lru_cache(maxsize=2)
def _offset_deltas(capacity: int) -> Pieces:
    """Return the varints of 0, 1, 2, …; every batch needs a beginning of the same column."""
    [pieces] = varint_pieces(np.arange(capacity, dtype=np.int64))
    return pieces


def _timestamp_deltas(timestamps: Ints | int, start: int, stop: int) -> list[Pieces]:
    if isinstance(timestamps, int):
        return [Pieces(np.zeros(stop - start, np.uint64), np.ones(stop - start, np.int64))]
    # Timestamps so far apart that their difference leaves 64 bits wrap, and wrap back in every reader.
    return varint_pieces(timestamps[start:stop] - timestamps[start])


def _assemble(rows: _Rows, section: _Section, compression: Compression, level: int | None) -> bytearray:
    start, count = section.start, section.count
    borrowed = 1 if rows.headers is None else 0
    joined = _join(rows, section, borrowed)
    records = memoryview(joined.buffers()[2])[borrowed : section.size_bytes]
    if compression is Compression.NONE:
        # Joined, so that no byte is cleared before it is written.
        data = bytearray().join((bytes(HEADER_SIZE), records, bytes(borrowed)))
    else:
        data = bytearray(HEADER_SIZE)
        data += compress(compression, bytes(records) + bytes(borrowed), level)
    first, last = _time_span(rows.timestamps, start, start + count)
    HEADER.pack_into(
        data,
        0,
        0,
        len(data) - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        compression,
        count - 1,
        first,
        last,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    return data


def _time_span(timestamps: Ints | int, start: int, stop: int) -> tuple[int, int]:
    if isinstance(timestamps, int):
        return timestamps, timestamps
    return int(timestamps[start]), int(timestamps[start:stop].max())


def _join(rows: _Rows, section: _Section, borrowed: int) -> Any:
    """Join the records; each begins with its predecessor's `borrowed` header count."""
    start, count = section.start, section.count
    stop = start + count
    length, *middle = section.prefix
    # The attributes byte is zero, so it lies ready in the word above the length.
    opening = Pieces(length.words << np.uint64(8 * borrowed), length.sizes + borrowed + _ATTRIBUTES_BYTES)
    prefix = [opening, *middle, rows.key_pieces.slice(start, stop)]
    value_pieces = rows.value_pieces.slice(start, stop)
    if rows.key is None:
        parts = [lay([*prefix, value_pieces])]
    else:
        parts = [lay(prefix), rows.key.slice(start, count), lay([value_pieces])]
    parts.append(rows.value.slice(start, count))
    if rows.headers is not None:
        parts += [lay([rows.headers.counts.slice(start, stop)]), rows.headers.bytes.slice(start, count)]
    if any(pa.types.is_large_binary(part.type) for part in parts):
        parts = [part.cast(pa.large_binary()) for part in parts]
    # `pa.scalar` would import pandas, which the process that commits has no other use for.
    [nothing] = pa.Array.from_buffers(parts[0].type, 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])
    return pc.binary_join_element_wise(*parts, nothing, options=_JOIN)


def seal(
    batch: EncodedBatch, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = True
) -> bytearray:
    """Write who produced the batch, in place, and its CRC; the result may be sealed again with other values."""
    data = batch.data
    [attributes] = _ATTRIBUTES.unpack_from(data, ATTRIBUTES_POSITION)
    attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(data, ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(data, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(data, CRC_POSITION, crc32c.crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))
    return data


def split(batch: EncodedBatch) -> list[EncodedBatch]:
    """Return the batch's records as two unsealed batches, for a broker that found the whole too large.

    It is read back rather than kept as columns, so that batches in flight hold no second copy of their data. Raises
    `ValueError` for a single record, which nothing can make smaller.
    """
    if batch.record_count < 2:
        raise ValueError("a batch of one record cannot be split; raise max.message.bytes or write smaller records")
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
            max_batch_bytes=_LARGEST_SECTION_BYTES,
            compression=header.compression,
            level=batch.level,
        )
    ]
