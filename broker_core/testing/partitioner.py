"""Kafka's default partitioner for records with a key."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash that Kafka's clients use, as an unsigned number.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        found = found * _MULTIPLIER & _MASK ^ part
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    found = (found ^ found >> 13) * _MULTIPLIER & _MASK
    return found ^ found >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's producer computes it.

    >>> partition_of_key(b"42", 4)
    0
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
