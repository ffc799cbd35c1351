"""Find the records section of a batch and unfold it, within a limit."""

from typing import Final

from broker_core.records.compression import Bytes, Compression, decompress
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.records.invalid import InvalidBatch

# Far above what a batch of the default max.message.bytes holds, far below what would hurt a test process.
DECOMPRESSED_LIMIT_BYTES: Final = 256 * 1024 * 1024


def read_section(
    buffer: Bytes, position: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> bytes | memoryview:
    """Return the records section, decompressed; `InvalidBatch` when it is not all there or cannot be unfolded."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise InvalidBatch(f"the batch at byte {position} ends at byte {end}, the buffer at byte {len(buffer)}")
    section = memoryview(buffer)[position + HEADER_SIZE : end]
    codec = header.compression
    return section if codec is Compression.NONE else decompress(codec, section, limit_bytes)
