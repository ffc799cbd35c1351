"""The decoder of Kafka record batches into Arrow columns.

All batches of a call are decoded together, because many topics have batches of a few records and a numpy call costs the
same for ten rows as for a thousand. Memory limits how many, because they can decompress to any size.
`decompress_batches` brings their records into memory, `record_boundaries` finds where each begins, and then each field
is read from all of them at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from broker_core.errors import DecompressedTooLarge, InvalidBatch
from broker_core.records.compression import Compression, decompress, decompress_into
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.types import TimestampType, counted
from spark_eos.codec.arrow_numbers import arrow_numbers
from spark_eos.codec.columns import BufferView
from spark_eos.codec.header_column import HEADER_TYPE, decode_headers, read_field
from spark_eos.codec.record_boundaries import SMALLEST_RECORD_BYTES, Section, find_leading_records, find_records
from spark_eos.codec.varints import Ints, Octets, read_varints

Bytes: TypeAlias = bytes | bytearray | memoryview
Span = tuple[int, BatchHeader]

# Arrow's binary columns have 32-bit offsets, Kafka's records 32-bit lengths.
LARGEST_BYTES: Final = 2**31 - 1
_SLAB_BYTES: Final = 16 * 1024 * 1024
# Most batches decompress to less than this; if one does not, the next memory is for a whole slab.
_GUESSED_TIMES: Final = 8
# Snappy copies at most 64 bytes for three that it reads, so a block that declares more than this is invalid.
_MOST_OF_SNAPPY: Final = 22
_STREAMED: Final = {Compression.GZIP: "gzip", Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
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


class Slab(NamedTuple):
    """Whole records: their bytes, where each begins and ends, and how many of them belong to which header."""

    data: Bytes
    starts: Ints
    ends: Ints
    headers: Sequence[BatchHeader]
    counts: Ints

    def rows(self, first: int, after: int) -> "Slab":
        sums: Ints = np.cumsum(self.counts).clip(first, after)
        counts = sums - np.append(first, sums[:-1])
        return self._replace(starts=self.starts[first:after], ends=self.ends[first:after], counts=counts)


def decompress_batches(buffer: Bytes, spans: Sequence[Span]) -> Iterator[Slab]:
    """Yield the records of the batches at `spans`, in order; a single uncompressed batch is not copied.

    A batch does not declare its decompressed size: a kilobyte can become gigabytes, by malice or because its records
    are alike. So nothing is decompressed before it is needed. Batches that decompress to little, which are nearly all,
    share a slab. A batch that does not end within a slab is decompressed in pieces, only as far as the records that its
    header counts, and these are passed on before more of it is read. So memory is limited to a slab or to the largest
    record, and data after the last record is refused unread.

    Raises `InvalidBatch` if records do not fill their section, or one has a declared size above 2 GiB.
    """
    if len(buffer) > LARGEST_BYTES:
        raise DecompressedTooLarge("cannot decode more than 2 GiB of record batches at once; fetch fewer bytes")
    if not any(header.compression for _, header in spans):
        bounds = [(position + HEADER_SIZE, position + header.size_bytes) for position, header in spans]
        yield _slab(buffer, bounds, [header for _, header in spans])
        return
    view = memoryview(buffer)
    compressed_bytes = sum(header.size_bytes for _, header in spans)
    gathered = _Gathered(min(_SLAB_BYTES, _GUESSED_TIMES * compressed_bytes))
    for position, header in spans:
        compressed = view[position + HEADER_SIZE : position + header.size_bytes]
        if gathered.takes(compressed, header):
            continue
        if gathered.headers:
            yield gathered.slab()
        gathered = _Gathered(_SLAB_BYTES)
        if not gathered.takes(compressed, header):
            yield from _piecewise(compressed, header)
    if gathered.headers:
        yield gathered.slab()


class _Gathered:
    """Memory for a slab, into which batches are decompressed one after another: no byte is copied again.

    The operating system allocates it when it is written to.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._memory = np.empty(capacity_bytes, np.uint8).data
        self._ends = [0]
        self.headers: list[BatchHeader] = []

    def takes(self, compressed: memoryview, header: BatchHeader) -> bool:
        """Decompress a records section, or return False if there is not enough memory."""
        size_bytes = decompress_into(header.compression, compressed, self._memory[self._ends[-1] :])
        if size_bytes is None:
            return False
        self._ends.append(self._ends[-1] + size_bytes)
        self.headers.append(header)
        return True

    def slab(self) -> Slab:
        data = self._memory[: self._ends[-1]].toreadonly()
        return _slab(data, list(zip(self._ends[:-1], self._ends[1:], strict=True)), self.headers)


def _slab(data: Bytes, bounds: Sequence[Section], headers: Sequence[BatchHeader]) -> Slab:
    counts = [header.record_count for header in headers]
    for (start, end), count in zip(bounds, counts, strict=True):
        if count * SMALLEST_RECORD_BYTES > end - start:
            raise InvalidBatch(f"{counted(count, 'record')} cannot fit in {end - start} bytes")
    starts, ends = find_records(data, bounds, counts)
    return Slab(data, starts, ends, headers, np.array(counts))


def _piecewise(compressed: memoryview, header: BatchHeader) -> Iterator[Slab]:
    """Decompress a large section as far as its records reach, about a slab at a time."""
    batch = f"the batch at offset {header.base_offset}"
    stream = _open(header.compression, compressed)
    held = bytearray()
    left, missing = header.record_count, _SLAB_BYTES
    while left:
        ended = not _read_on(stream, held, missing)
        starts, end = find_leading_records(held, left, ended)
        wanted = _SLAB_BYTES
        if end > len(held):
            starts, size, end = starts[:-1], end - int(starts[-1]), int(starts[-1])
            wanted = max(wanted, size)
            if size > LARGEST_BYTES:
                raise InvalidBatch(f"{batch} has a record with an encoded length of {size} bytes; the maximum is 2 GiB")
        left -= len(starts)
        if ended and left:
            raise InvalidBatch(
                f"{batch} has a record count of {header.record_count}, {left} more than there are records"
            )
        if len(starts):
            yield Slab(held, starts, np.append(starts[1:], end), [header], np.array([len(starts)]))
            held = held[end:]
        missing = wanted - len(held)
    if held or _read_on(stream, held, 1):
        raise InvalidBatch(f"{batch} has data after the last of its {header.record_count} records")


def _open(codec: Compression, compressed: memoryview) -> Any:
    # cramjam, which decompresses everything else, can only decompress gzip and lz4 as a whole.
    name = _STREAMED.get(codec)
    if name is not None:
        return pa.CompressedInputStream(pa.BufferReader(compressed), name)
    return pa.BufferReader(decompress(codec, compressed, min(_MOST_OF_SNAPPY * len(compressed), LARGEST_BYTES)))


def _read_on(stream: Any, held: bytearray, size: int) -> bool:
    try:
        while size > 0:
            piece = stream.read(min(size, _SLAB_BYTES))
            if not piece:
                return False
            held += piece
            size -= len(piece)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidBatch(f"cannot decompress records: {error}") from None
    return True


def decode_slabs(
    buffer: Bytes,
    spans: Sequence[Span],
    *,
    include_headers: bool,
    first_offset: int,
    end_offset: int,
) -> Iterator[Any]:
    """Decode the batches at `spans` (position and header) into Arrow record batches, in the order given.

    Records outside [first_offset, end_offset) are dropped, and so are control batches. Each Arrow record batch has the
    columns of `SCHEMA`, and with `include_headers` a headers column that is null for records without any. Memory is
    limited to about three times 16 MiB, or three times the largest record if that is more, whatever the total size.
    Raises `InvalidBatch` for bytes that do not match their header, possibly after some rows were returned; checksums
    are not checked (see `check_crcs`).

    >>> from broker_core.records.batch import NewRecord, build_batch
    >>> data = build_batch([NewRecord(b"k", b"v", (), 5)], base_offset=3)
    >>> spans = [(0, BatchHeader.parse(data))]
    >>> [rows] = decode_slabs(data, spans, include_headers=False, first_offset=0, end_offset=10)
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
    if not wanted:
        return
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
