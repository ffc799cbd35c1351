"""The reader of stores of either format, and the orders in which Java lists their entries and looks for a key to use.

Both orders follow from the hashes of the aliases. Of several keys of one kind, the first is used, so the order decides
which certificate clients see.
"""

from collections.abc import Sequence

from broker_core.java_stores.entries import StoreEntry, StoreError, store_format
from broker_core.java_stores.jks import read_jks
from broker_core.java_stores.pkcs12 import read_pkcs12
from broker_core.types import java_string_hash

_LOAD = 0.75


def read_store(data: bytes, password: str | None) -> list[StoreEntry]:
    """Return the entries of a JKS or PKCS12 store in their order in the file.

    Raises `StoreError`, and ImportError for PKCS12 without the package cryptography. Without a password the integrity
    of a JKS store is not checked, as in Java.
    """
    found = store_format(data)
    if found == "JKS":
        return read_jks(data, password)
    if found == "PKCS12":
        return read_pkcs12(data, password)
    raise StoreError("it is neither JKS nor PKCS12")


def listed(entries: Sequence[StoreEntry], store_format: str) -> list[StoreEntry]:
    """Return the entries of a store in the order of `KeyStore.aliases()`: JKS keeps them in a `Hashtable`."""
    if store_format != "JKS":
        return list(entries)
    buckets: list[list[StoreEntry]] = [[] for _ in range(11)]
    for count, entry in enumerate(entries):
        moved = [entry]
        if count >= int(_LOAD * len(buckets)):
            moved = [*_in_order(buckets), entry]
            buckets = [[] for _ in range(2 * len(buckets) + 1)]
        for each in moved:
            buckets[(java_string_hash(each.alias) & 0x7FFFFFFF) % len(buckets)].insert(0, each)
    return _in_order(buckets)


def _in_order(buckets: list[list[StoreEntry]]) -> list[StoreEntry]:
    return [each for bucket in reversed(buckets) for each in bucket]


def preferred(entries: Sequence[StoreEntry]) -> list[StoreEntry]:
    """Return listed entries in the order in which Java's `SunX509` looks for a key: the order of a `HashMap`."""
    size = 16
    while len(entries) > _LOAD * size:
        size *= 2

    def bucket(entry: StoreEntry) -> int:
        hashed = java_string_hash(entry.alias) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & (size - 1)

    return sorted(entries, key=bucket)
