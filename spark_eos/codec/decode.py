"""The decoder of Kafka record batches into Arrow columns.

All batches of a call are decoded together, because many topics have batches of a few records and a numpy call costs the
same for ten rows as for a thousand. Memory limits how many, because they can decompress to any size. `decompress`
brings their records into memory, `record_boundaries` finds where each begins, and then each field is read from all of
them at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from broker_core.errors import DecompressedTooLarge, InvalidBatch
from broker_core.records.header import BatchHeader, crc_matches
from broker_core.types import TimestampType
from spark_eos.codec.arrow_numbers import arrow_numbers
from spark_eos.codec.columns import BufferView
from spark_eos.codec.decompress import LARGEST_BYTES, Bytes, Slab, Span, decompress_batches
from spark_eos.codec.header_column import HEADER_TYPE, decode_headers, read_field
from spark_eos.codec.varints import Ints, Octets, read_varints

# A row takes a few hundred bytes while it is decoded.
_ROWS_AT_ONCE: Final = 2**17
_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("timestamp_type", pa.int32()),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, ("headers", HEADER_TYPE)])


def decode_batches(
    buffer: Bytes,
    spans: Sequence[Span],
    *,
    include_headers: bool,
    first_offset: int,
    end_offset: int,
    verify_crc: bool = True,
) -> Any:
    """Decode as `decode_slabs` does, but give one Arrow record batch, which is empty when no record is wanted.

    Raises `DecompressedTooLarge`, too, when it would be larger than 2 GiB.

    >>> from broker_core.records.batch import NewRecord, build_batch
    >>> data = build_batch([NewRecord(b"k", b"v", (), 5)], base_offset=3)
    >>> spans = [(0, BatchHeader.parse(data))]
    >>> rows = decode_batches(data, spans, include_headers=False, first_offset=0, end_offset=10)
    >>> rows["offset"].to_pylist(), rows["value"].to_pylist()
    ([3], [b'v'])
    """
    slabs: list[Any] = []
    size = 0
    for slab in decode_slabs(
        buffer,
        spans,
        include_headers=include_headers,
        first_offset=first_offset,
        end_offset=end_offset,
        verify_crc=verify_crc,
    ):
        size += slab.nbytes
        if slabs and size > LARGEST_BYTES:
            raise DecompressedTooLarge(
                "the records of one call decompress to more than 2 GiB; decode fewer batches at a time"
            )
        slabs.append(slab)
    if len(slabs) == 1:
        return slabs[0]
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    if not slabs:
        return pa.RecordBatch.from_pylist([], schema)
    columns = [pa.concat_arrays([slab.column(index) for slab in slabs]) for index in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def decode_slabs(
    buffer: Bytes,
    spans: Sequence[Span],
    *,
    include_headers: bool,
    first_offset: int,
    end_offset: int,
    verify_crc: bool = True,
) -> Iterator[Any]:
    """Decode the batches at `spans` (position and header) into Arrow record batches, in the order given.

    Records outside [first_offset, end_offset) are dropped, and so are control batches. Each Arrow record batch has the
    columns of `SCHEMA`, and with `include_headers` a headers column that is null for records without any. Memory is
    limited to about three times 16 MiB, or three times the largest record if that is more, whatever the total size.
    Raises `InvalidBatch` for bytes that do not match their header, possibly after some rows were returned.
    """
    wanted = [
        (position, header)
        for position, header in spans
        if header.record_count > 0
        and not header.is_control
        and header.last_offset >= first_offset
        and header.base_offset < end_offset
    ]
    if not wanted:
        return
    if verify_crc:
        _verify(buffer, wanted)
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    for slab in decompress_batches(buffer, wanted):
        view = BufferView(slab.data)
        for first in range(0, len(slab.starts), _ROWS_AT_ONCE):
            rows = slab.rows(first, first + _ROWS_AT_ONCE)
            try:
                arrays = _decode(view, rows, include_headers, first_offset, end_offset)
            except IndexError:
                raise InvalidBatch("a record runs past the end of its batch") from None
            if len(arrays[0]):
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _verify(buffer: Bytes, spans: Sequence[Span]) -> None:
    for position, header in spans:
        if not crc_matches(buffer, position, header):
            problem = f"the CRC-32C is not {header.crc:#010x}, or the batch is truncated"
            raise InvalidBatch(f"the batch at offset {header.base_offset} is corrupt: {problem}")


def _decode(view: BufferView, rows: Slab, include_headers: bool, first_offset: int, end_offset: int) -> list[Any]:
    octets, headers, counts, ends = view.octets, rows.headers, rows.counts, rows.ends
    timestamp_deltas, at = read_varints(octets, _past_lengths(octets, rows.starts, ends) + 1)
    offset_deltas, at = read_varints(octets, at)
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + offset_deltas
    timestamps, types = _timestamps(headers, counts, timestamp_deltas)
    if offsets.min() < first_offset or offsets.max() >= end_offset:
        kept = np.flatnonzero((offsets >= first_offset) & (offsets < end_offset))
        at, ends, offsets, timestamps, types = at[kept], ends[kept], offsets[kept], timestamps[kept], types[kept]
    bounds = np.empty((len(at), 4), np.int32)
    key_lengths, bounds[:, 0], at = read_field(octets, at, ends)
    bounds[:, 1] = at
    value_lengths, bounds[:, 2], at = read_field(octets, at, ends)
    bounds[:, 3] = at
    header_counts, at = read_varints(octets, at)
    _check_ends(header_counts, at, ends)
    keys, values = view.take(bounds, key_lengths, value_lengths)
    arrays = [keys, values, *map(arrow_numbers, (offsets, timestamps, types))]
    if include_headers:
        arrays.append(decode_headers(view, at, header_counts, ends))
    return arrays


def _check_ends(header_counts: Ints, at: Ints, ends: Ints) -> None:
    """Raise if a record has bytes left after its last header."""
    if not header_counts.any():
        is_wrong = (at != ends).any()
    else:
        is_wrong = (header_counts < 0).any() or (at > ends).any() or ((at != ends) & (header_counts == 0)).any()
    if is_wrong:
        raise InvalidBatch("a record does not end at its encoded length")
    if (header_counts > ends - at).any():
        raise InvalidBatch("a record has a header count larger than its size in bytes")


def _past_lengths(octets: Octets, starts: Ints, ends: Ints) -> Ints:
    """Return where each record's length ends; it was followed to the end of the record, so only its sign is checked."""
    first = octets[starts]
    if np.maximum.reduce(first & 1, initial=0):
        raise InvalidBatch("a record has a negative length")
    after = starts + ((first >> 7) + np.uint8(1))
    if np.maximum.reduce(octets[after - 1], initial=0) < 0x80:
        return after
    lengths, after = read_varints(octets, starts)
    if (lengths != ends - after).any():
        raise InvalidBatch("a record has a negative length")
    return after


def _timestamps(headers: Sequence[BatchHeader], counts: Any, deltas: Ints) -> tuple[Ints, Any]:
    """Return each record's timestamp and its type; a broker's timestamp is the maximum of the batch."""
    stamped = np.array([header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers])
    first = np.array([header.base_timestamp for header in headers], np.int64)
    latest = np.array([header.max_timestamp for header in headers], np.int64)
    types = np.repeat(stamped.astype(np.int32), counts)
    if stamped.any():
        deltas = np.where(types == TimestampType.LOG_APPEND_TIME, 0, deltas)
    return np.repeat(np.where(stamped, latest, first), counts) + deltas, types
