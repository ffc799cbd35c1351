"""Find where a batch ends among bytes that a client sent, by the same few fields as Kafka and with its patience.

What is left behind the last whole batch is no error to Kafka: it is cut off. A length or a magic that no batch can
have is one, and is met before anything is known of the batch.
"""

import struct
from typing import Final

from broker_core.records.compression import Bytes
from broker_core.records.header import LENGTH_OVERHEAD, MAGIC
from broker_core.records.invalid import InvalidBatch

MAGIC_POSITION: Final = 16
_LENGTH_POSITION: Final = 8
_LENGTH: Final = struct.Struct(">i")
# That of a batch of magic 0.
_SHORTEST_LENGTH: Final = 14


def framed_size(buffer: Bytes, position: int = 0) -> int | None:
    """Return the size of the batch at `position`, None when it is not all there.

    Raises `InvalidBatch` when it cannot be one.
    """
    left = len(buffer) - position
    if left < LENGTH_OVERHEAD:
        return None
    length: int = _LENGTH.unpack_from(buffer, position + _LENGTH_POSITION)[0]
    if length < _SHORTEST_LENGTH:
        raise InvalidBatch(f"batch length {length} at byte {position} is below the shortest of {_SHORTEST_LENGTH}")
    if left <= MAGIC_POSITION:
        return None
    if buffer[position + MAGIC_POSITION] > MAGIC:
        raise InvalidBatch(f"magic {buffer[position + MAGIC_POSITION]} at byte {position} is none of 0 to {MAGIC}")
    size_bytes = length + LENGTH_OVERHEAD
    return size_bytes if size_bytes <= left else None
