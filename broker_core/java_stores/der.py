"""Values in DER, as far as private keys are found with it."""

from typing import Final

from broker_core.java_stores.entries import StoreError

SEQUENCE: Final = 0x30
OCTETS: Final = 0x04


def der_value(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first value, which must have this tag, and what follows it; raise `StoreError`."""
    if len(data) < 2 or data[0] != tag:
        raise StoreError("a value is not of the expected type")
    size, start = data[1], 2
    if size > 0x7F:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise StoreError("a value is cut off")
    return data[start : start + size], data[start + size :]
