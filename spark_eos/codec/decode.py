"""Decode Kafka record batches into Arrow columns.

All batches of a call are decoded together, for many topics hold batches of a few records and a numpy call costs the
same for ten rows as for a thousand. Uncompressed batches are read where they lie; if any is compressed, all sections
are laid end to end first. Then `boundaries` finds where records begin, and each field is read from all of them at once.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.records.compression import Compression, decompress
from broker_core.records.header import HEADER_SIZE, BatchHeader, crc_matches
from broker_core.records.invalid import InvalidBatch
from broker_core.types import TimestampType
from spark_eos.codec.boundaries import find_records
from spark_eos.codec.header_column import HEADER_TYPE, decode_headers, read_field
from spark_eos.codec.overlay import Overlay
from spark_eos.codec.varints import Ints, read_varints

Span = tuple[int, BatchHeader]

_LARGEST_BYTES: Final = 2**31 - 1
_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("timestamp_type", pa.int32()),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, ("headers", HEADER_TYPE)])


class _Sections(NamedTuple):
    """Hold the records sections of all batches in one buffer, with where each begins and ends."""

    data: bytes | bytearray | memoryview
    bounds: list[tuple[int, int]]


def decode_batches(
    buffer: bytes | bytearray | memoryview,
    spans: Sequence[Span],
    *,
    include_headers: bool,
    first_offset: int,
    end_offset: int,
    verify_crc: bool = True,
) -> Any:
    """Decode the batches at `spans` (position and header) into one Arrow record batch, in the order given.

    Records outside [first_offset, end_offset) are dropped, and so are control batches. Returns the columns of `SCHEMA`,
    and with `include_headers` a headers column that is null where a record has none. Raises `InvalidBatch` for bytes
    that are not what their header says, and when the records of one call unfold to more than 2 GiB.

    >>> from broker_core.records.batch import NewRecord, build_batch
    >>> data = build_batch([NewRecord(b"k", b"v", (), 5)], base_offset=3)
    >>> spans = [(0, BatchHeader.parse(data))]
    >>> rows = decode_batches(data, spans, include_headers=False, first_offset=0, end_offset=10)
    >>> rows["offset"].to_pylist(), rows["value"].to_pylist()
    ([3], [b'v'])
    """
    wanted = [
        (position, header)
        for position, header in spans
        if header.record_count > 0
        and not header.is_control
        and header.last_offset >= first_offset
        and header.base_offset < end_offset
    ]
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    if not wanted:
        return pa.RecordBatch.from_pylist([], schema)
    if verify_crc:
        _verify(buffer, wanted)
    sections = _unfold(buffer, wanted)
    try:
        arrays = _decode(sections, [header for _, header in wanted], include_headers, first_offset, end_offset)
    except IndexError:
        raise InvalidBatch("a record runs past the end of its batch") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _verify(buffer: bytes | bytearray | memoryview, spans: Sequence[Span]) -> None:
    for position, header in spans:
        if not crc_matches(buffer, position, header):
            problem = f"its CRC-32C is not {header.crc:#010x}, or it is cut short"
            raise InvalidBatch(f"the batch at offset {header.base_offset} is damaged: {problem}")


def _unfold(buffer: bytes | bytearray | memoryview, spans: Sequence[Span]) -> _Sections:
    """Bring all records sections, decompressed, into one buffer of at most 2 GiB."""
    codecs = [header.compression for _, header in spans]
    if not any(codecs):
        if len(buffer) > _LARGEST_BYTES:
            raise _too_large()
        return _Sections(buffer, [(position + HEADER_SIZE, position + header.size_bytes) for position, header in spans])
    view = memoryview(buffer)
    parts: list[bytes | memoryview] = []
    bounds: list[tuple[int, int]] = []
    size = 0
    for (position, header), codec in zip(spans, codecs, strict=True):
        part: bytes | memoryview = view[position + HEADER_SIZE : position + header.size_bytes]
        if codec is not Compression.NONE:
            part = decompress(codec, part, _LARGEST_BYTES - size)
        parts.append(part)
        bounds.append((size, size + len(part)))
        size += len(part)
        if size > _LARGEST_BYTES:
            raise _too_large()
    return _Sections(b"".join(parts), bounds)


def _too_large() -> InvalidBatch:
    return InvalidBatch("the record batches of one call unfold to more than 2 GiB; fetch fewer bytes at a time")


def _decode(
    sections: _Sections, headers: Sequence[BatchHeader], include_headers: bool, first_offset: int, end_offset: int
) -> list[Any]:
    starts, ends = _records(sections, headers)
    counts = np.array([header.record_count for header in headers])
    overlay = Overlay(sections.data)
    octets = overlay.octets
    lengths, at = read_varints(octets, starts)
    if (lengths != ends - at).any():
        raise InvalidBatch("the length of a record is negative")
    timestamp_deltas, at = read_varints(octets, at + 1)
    offset_deltas, at = read_varints(octets, at)
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + offset_deltas
    timestamps, types = _timestamps(headers, counts, timestamp_deltas)
    if offsets.min() < first_offset or offsets.max() >= end_offset:
        kept = np.flatnonzero((offsets >= first_offset) & (offsets < end_offset))
        at, ends, offsets, timestamps, types = at[kept], ends[kept], offsets[kept], timestamps[kept], types[kept]
    bounds = np.empty((len(at), 4), np.int64)
    key_lengths, bounds[:, 0], bounds[:, 1] = read_field(octets, at, ends)
    value_lengths, bounds[:, 2], bounds[:, 3] = read_field(octets, bounds[:, 1], ends)
    header_counts, at = read_varints(octets, bounds[:, 3])
    if (header_counts < 0).any() or (at > ends).any() or ((at != ends) & (header_counts == 0)).any():
        raise InvalidBatch("a record does not end where its length says")
    if (header_counts > ends - at).any():
        raise InvalidBatch("a record counts more headers than it has bytes")
    keys, values = overlay.take(bounds, key_lengths, value_lengths)
    arrays = [keys, values, pa.array(offsets), pa.array(timestamps), pa.array(types)]
    if include_headers:
        arrays.append(decode_headers(overlay, at, header_counts, ends))
    return arrays


def _records(sections: _Sections, headers: Sequence[BatchHeader]) -> tuple[Ints, Ints]:
    """Return the start and end position of every record."""
    for (start, end), header in zip(sections.bounds, headers, strict=True):
        if header.record_count > end - start:
            raise InvalidBatch(f"{header.record_count} records cannot fit {end - start} bytes")
    return find_records(sections.data, sections.bounds, [header.record_count for header in headers])


def _timestamps(headers: Sequence[BatchHeader], counts: Any, deltas: Ints) -> tuple[Ints, Any]:
    """Return each record's time and who gave it; a broker's stamp is the batch's maximum, whatever the record says."""
    stamped = np.array([header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers])
    first = np.array([header.base_timestamp for header in headers], np.int64)
    latest = np.array([header.max_timestamp for header in headers], np.int64)
    types = np.repeat(stamped.astype(np.int32), counts)
    if stamped.any():
        deltas = np.where(types == TimestampType.LOG_APPEND_TIME, 0, deltas)
    return np.repeat(np.where(stamped, latest, first), counts) + deltas, types
