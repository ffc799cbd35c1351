"""The compression codecs of the records section, compatible with Kafka's clients.

Both packages use these codecs. Compatibility and safety require three choices:

- lz4: the Java client rejects frames with linked blocks, so blocks are written independent.
- snappy: the Java client uses xerial's stream format, librdkafka sends raw snappy. Both are read.
- A malicious or corrupt batch may decompress to any size, so callers can set a limit.
"""

import struct
from enum import IntEnum
from typing import Any, Final, TypeAlias

import cramjam

from broker_core.errors import DecompressedTooLarge, InvalidBatch

Bytes: TypeAlias = bytes | bytearray | memoryview

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_SIZE: Final = struct.Struct(">i")
_FIRST_GUESS_BYTES: Final = 64 * 1024


class Compression(IntEnum):
    """The codecs, numbered as in bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The default levels of Kafka's producer; level 0 of lz4 is the fast compressor, as in lz4-java.
_DEFAULT_LEVELS: Final = {Compression.GZIP: 6, Compression.LZ4: 0, Compression.ZSTD: 3}
_DECODERS: Final[dict[Compression, Any]] = {
    Compression.GZIP: cramjam.gzip,
    Compression.LZ4: cramjam.lz4,
    Compression.ZSTD: cramjam.zstd,
}


def compress(codec: Compression, data: Bytes, level: int | None = None) -> bytes:
    """Compress a records section; `level` is on the codec's own scale, None is Kafka's default (snappy has none)."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    chosen = _DEFAULT_LEVELS[codec] if level is None else level
    if codec is Compression.LZ4:
        frame = cramjam.lz4.Compressor(level=chosen, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    return bytes(_DECODERS[codec].compress(data, level=chosen))


def decompress(codec: Compression, data: Bytes, limit_bytes: int | None = None) -> bytes:
    """Decompress a records section.

    Raises `InvalidBatch` if the data is truncated or not in the codec's format, and `DecompressedTooLarge` if it
    decompresses to more than `limit_bytes`.
    """
    if codec is Compression.NONE:
        plain = bytes(data)
    elif codec is Compression.SNAPPY:
        plain = _decompress_snappy(data, limit_bytes)
    elif limit_bytes is None:
        plain = _unlimited(codec, data)
    else:
        plain = _limited(codec, data, limit_bytes)
    if limit_bytes is not None and len(plain) > limit_bytes:
        raise _over_limit(codec, limit_bytes)
    return plain


def _over_limit(codec: Compression, limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(
        f"{codec.name.lower()} records decompress to more than the limit of {limit_bytes} bytes"
    )


def _unlimited(codec: Compression, data: Bytes) -> bytes:
    try:
        return bytes(_DECODERS[codec].decompress(data))
    except cramjam.DecompressionError as error:
        raise InvalidBatch(f"records cannot be decompressed as {codec.name.lower()}: {error}") from None


def _limited(codec: Compression, data: Bytes, limit_bytes: int) -> bytes:
    """Decompress into buffers of growing size, so that a decompression bomb never takes more memory than the limit."""
    ceiling = limit_bytes + 1
    capacity = min(ceiling, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        buffer = bytearray(capacity)
        size = decompress_into(codec, data, memoryview(buffer))
        if size is not None:
            return bytes(memoryview(buffer)[:size])
        if capacity == ceiling:
            raise _over_limit(codec, limit_bytes)
        capacity = min(ceiling, 4 * capacity)


def decompress_into(codec: Compression, data: Bytes, space: memoryview) -> int | None:
    """Decompress a records section into memory and return its size, or None if it needs more memory.

    Raises `InvalidBatch` if the data is truncated or not in the codec's format.
    """
    if codec in _DECODERS:
        try:
            return int(_DECODERS[codec].decompress_into(data, space))
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error):
                return None
            raise InvalidBatch(f"records cannot be decompressed as {codec.name.lower()}: {error}") from None
    try:
        plain = decompress(codec, data, len(space))
    except DecompressedTooLarge:
        return None
    space[: len(plain)] = plain
    return len(plain)


def _compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    framed = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        framed += _BLOCK_SIZE.pack(len(block))
        framed += block
    return bytes(framed)


def _decompress_snappy(data: Bytes, limit_bytes: int | None) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(view, limit_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise InvalidBatch("records cannot be decompressed as snappy: the stream header is cut short")
    plain = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _BLOCK_SIZE.size
        size = _BLOCK_SIZE.unpack_from(view, position)[0] if start <= len(view) else -1
        if size < 0 or start + size > len(view):
            raise InvalidBatch(f"records cannot be decompressed as snappy: its block at byte {position} is cut short")
        plain += _decompress_block(view[start : start + size], limit_bytes)
        if limit_bytes is not None and len(plain) > limit_bytes:
            raise _over_limit(Compression.SNAPPY, limit_bytes)
        position = start + size
    return bytes(plain)


def _decompress_block(block: memoryview, limit_bytes: int | None) -> bytes:
    """Decompress one raw snappy block; check the limit first, against the decompressed size in its first bytes."""
    try:
        if limit_bytes is not None and cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise _over_limit(Compression.SNAPPY, limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidBatch(f"records cannot be decompressed as snappy: {error}") from None
