"""The orders in which Java lists the entries of a store, and in which it looks for a key to use.

Both follow from the hashes of the aliases. Of several keys of one kind, the first is used, so the order decides which
certificate clients see.
"""

from collections.abc import Sequence

from broker_core.java_stores.entries import StoreEntry
from broker_core.types import java_string_hash

_LOAD = 0.75


def listed(entries: Sequence[StoreEntry], store_format: str) -> list[StoreEntry]:
    """Return the entries of a store in the order of `KeyStore.aliases()`: JKS keeps them in a `Hashtable`."""
    return _in_hashtable(entries) if store_format == "JKS" else list(entries)


def preferred(entries: Sequence[StoreEntry]) -> list[StoreEntry]:
    """Return listed entries in the order in which Java's `SunX509` looks for a key, that of a `HashMap`."""
    size = 16
    while len(entries) > _LOAD * size:
        size *= 2

    def bucket(entry: StoreEntry) -> int:
        hashed = java_string_hash(entry.alias) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & (size - 1)

    return sorted(entries, key=bucket)


def _in_hashtable(entries: Sequence[StoreEntry]) -> list[StoreEntry]:
    """Return entries in the order of Java's `Hashtable`, to which they are added one after the other."""
    buckets: list[list[StoreEntry]] = [[] for _ in range(11)]
    for count, entry in enumerate(entries):
        if count >= int(_LOAD * len(buckets)):
            present = [each for bucket in reversed(buckets) for each in bucket]
            buckets = [[] for _ in range(2 * len(buckets) + 1)]
            for each in present:
                _put(buckets, each)
        _put(buckets, entry)
    return [each for bucket in reversed(buckets) for each in bucket]


def _put(buckets: list[list[StoreEntry]], entry: StoreEntry) -> None:
    buckets[(java_string_hash(entry.alias) & 0x7FFFFFFF) % len(buckets)].insert(0, entry)
