"""The reader of stores of either format."""

from broker_core.java_stores.entries import StoreEntry, StoreError, store_format
from broker_core.java_stores.jks import read_jks
from broker_core.java_stores.pkcs12 import read_pkcs12


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
