"""The decompression of record sections into memory: one bounded slab after the other, whole records only.

A batch does not declare its decompressed size: a kilobyte can become gigabytes, by malice or because its records are
alike. So nothing is decompressed before it is needed. Batches that decompress to little, which are nearly all, share a
slab. A batch that does not end within a slab is decompressed in pieces, only as far as the records that its header
counts, and these are passed on before more of it is read. So memory is limited to a slab or to the largest record, and
data after the last record is refused unread.

pyarrow reads in pieces: cramjam, which decompresses everything else, can only decompress gzip and lz4 as a whole.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from broker_core.errors import DecompressedTooLarge, InvalidBatch
from broker_core.records.compression import Compression, decompress
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.types import counted
from spark_eos.codec.record_boundaries import SMALLEST_RECORD_BYTES, Section, find_leading_records, find_records
from spark_eos.codec.varints import Ints

Bytes: TypeAlias = bytes | bytearray | memoryview
Span = tuple[int, BatchHeader]

# Arrow's binary columns have 32-bit offsets, Kafka's records 32-bit lengths.
LARGEST_BYTES: Final = 2**31 - 1
_SLAB_BYTES: Final = 16 * 1024 * 1024
# Snappy copies at most 64 bytes for three that it reads, so a block that declares more than this is invalid.
_MOST_OF_SNAPPY: Final = 22
_STREAMED: Final = {Compression.GZIP: "gzip", Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


class Slab(NamedTuple):
    """Whole records: their bytes, where each begins and ends, and how many of them belong to which header."""

    data: Bytes
    starts: Ints
    ends: Ints
    headers: Sequence[BatchHeader]
    counts: Ints

    def rows(self, first: int, after: int) -> "Slab":
        """Return the records from number `first` to `after`, without copying."""
        sums: Ints = np.cumsum(self.counts).clip(first, after)
        counts = sums - np.append(first, sums[:-1])
        return self._replace(starts=self.starts[first:after], ends=self.ends[first:after], counts=counts)


def decompress_batches(buffer: Bytes, spans: Sequence[Span]) -> Iterator[Slab]:
    """Yield the records of the batches at `spans`, in order; a single uncompressed batch is not copied.

    Raises `InvalidBatch` if records do not fill their section, or one has a declared size above 2 GiB.
    """
    if len(buffer) > LARGEST_BYTES:
        raise DecompressedTooLarge("cannot decode more than 2 GiB of record batches at once; fetch fewer bytes")
    if not any(header.compression for _, header in spans):
        bounds = [(position + HEADER_SIZE, position + header.size_bytes) for position, header in spans]
        yield _slab(buffer, bounds, [header for _, header in spans])
        return
    view = memoryview(buffer)
    parts: list[Bytes] = []
    headers: list[BatchHeader] = []
    size = 0
    for position, header in spans:
        compressed = view[position + HEADER_SIZE : position + header.size_bytes]
        part = _small(header.compression, compressed)
        if parts and (part is None or size + len(part) > _SLAB_BYTES):
            yield _joined(parts, headers)
            parts, headers, size = [], [], 0
        if part is None:
            yield from _piecewise(compressed, header)
        else:
            parts.append(part)
            headers.append(header)
            size += len(part)
    if parts:
        yield _joined(parts, headers)


def _small(codec: Compression, compressed: memoryview) -> Bytes | None:
    """Return a records section, or None if it decompresses to more than a slab."""
    if codec is Compression.NONE:
        return compressed
    try:
        return decompress(codec, compressed, _SLAB_BYTES)
    except DecompressedTooLarge:
        return None


def _joined(parts: Sequence[Bytes], headers: Sequence[BatchHeader]) -> Slab:
    ends = np.cumsum([len(part) for part in parts]).tolist()
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return _slab(data, list(zip([0, *ends[:-1]], ends, strict=True)), headers)


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
    name = _STREAMED.get(codec)
    if name is not None:
        return pa.CompressedInputStream(pa.BufferReader(compressed), name)
    return pa.BufferReader(decompress(codec, compressed, min(_MOST_OF_SNAPPY * len(compressed), LARGEST_BYTES)))


def _read_on(stream: Any, held: bytearray, size: int) -> bool:
    """Append `size` bytes of the stream; return False if it ends before."""
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
