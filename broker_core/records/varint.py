"""The zigzag varints of the record format (KIP-98)."""

from functools import lru_cache

from broker_core.errors import InvalidBatch

_LONGEST_BYTES = 10
_LONGEST_BYTES_OF_32_BITS = 5
_LONGEST = (1 << 64) - 1
_LONGEST_OF_32_BITS = (1 << 32) - 1


def append_varint(target: bytearray, value: int) -> None:
    """Append `value` (a signed 32- or 64-bit number) as a zigzag varint."""
    unsigned = (value << 1) ^ (value >> 63)
    while unsigned > 0x7F:
        target.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    target.append(unsigned)


# The lengths in the records that coordinators write, and the numbers of records in batches, are the same few each time.
@lru_cache(maxsize=16_384)
def varint_bytes(value: int) -> bytes:
    """Return a signed 32- or 64-bit number as a zigzag varint."""
    encoded = bytearray()
    append_varint(encoded, value)
    return bytes(encoded)


def read_varint(
    data: bytes | bytearray | memoryview, position: int, longest_bytes: int = _LONGEST_BYTES
) -> tuple[int, int]:
    """Return the zigzag varint at `position` and the position after it; raise `IndexError` past the end of `data`."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    unsigned = byte & 0x7F
    for index in range(1, longest_bytes):
        byte = data[position + index]
        unsigned |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            # The last byte can contain bits beyond 32 or 64. Java drops them; sizes must come out as in Kafka.
            unsigned &= _LONGEST if longest_bytes == _LONGEST_BYTES else _LONGEST_OF_32_BITS
            return (unsigned >> 1) ^ -(unsigned & 1), position + index + 1
    raise InvalidBatch(f"varint at byte {position} is longer than {longest_bytes} bytes")


def read_varint32(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return a varint that Kafka reads as 32 bits: every varint of a record except the timestamp delta."""
    return read_varint(data, position, _LONGEST_BYTES_OF_32_BITS)
