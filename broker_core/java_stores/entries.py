"""The entries of key stores, the format that the content of a file shows, and values in DER, the form of keys."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
# The beginning of a DER sequence of more than 127 bytes, as PKCS12 is with any entry.
_PKCS12: Final = (b"\x30\x80", b"\x30\x81", b"\x30\x82", b"\x30\x83", b"\x30\x84")
# Without entries the length has one byte, and the number of the version follows it.
_SEQUENCE: Final = b"\x30"
_VERSION: Final = b"\x02\x01"
# The tags of values in DER.
SEQUENCE: Final = 0x30
OCTETS: Final = 0x04


class StoreError(ValueError):
    """The bytes are no complete store, or a password is another one; the message does not contain the password."""


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A private key with its certificate chain, its own first; without a key, a trusted certificate.

    Certificates are in DER. `unlock` returns the key in PKCS 8 for its password, and raises `StoreError` for another.
    """

    alias: str
    certificates: Sequence[bytes]
    unlock: Callable[[str], bytes] | None = field(default=None, repr=False)


def store_format(data: bytes) -> str | None:
    """Return the format of a store by its first bytes: JKS, PKCS12 or JCEKS, or None for anything else, such as PEM.

    Java reads JKS and PKCS12 under either type, and most files named `.jks` are PKCS12 since Java 9, so that neither
    the name nor the type shows the format.

    >>> store_format(b"-----BEGIN CERTIFICATE-----") is None
    True
    """
    if data.startswith(_PKCS12) or (data[:1] == _SEQUENCE and data[2:4] == _VERSION):
        return "PKCS12"
    return {JKS_MAGIC: "JKS", _JCEKS_MAGIC: "JCEKS"}.get(data[: len(JKS_MAGIC)])


def private_key_pem(pkcs8: bytes) -> str:
    return f"-----BEGIN PRIVATE KEY-----\n{base64.encodebytes(pkcs8).decode()}-----END PRIVATE KEY-----\n"


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
