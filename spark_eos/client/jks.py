"""The reader of JKS, the key store format of Java before version 9.

A store is a sequence of entries, followed by the SHA-1 digest of the password and the entries. Certificates are not
encrypted. A private key is combined with a stream: each block of the stream is the SHA-1 digest of the password and the
block before, and a salt stands before the first. This protects little, so a store needs the permissions of a key.
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_VERSIONS: Final = (1, 2)
_X509: Final = "X.509"
# Java adds this text to what it digests, so that the digest is not one of the password alone.
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = hashlib.sha1().digest_size
_DER_SEQUENCE, _DER_OCTETS = 0x30, 0x04


class DamagedError(ValueError):
    """The file is no complete store, or its password is another one."""


@dataclass(frozen=True, slots=True)
class JksEntry:
    """A private key with its certificate chain; without a key, a trusted certificate. Certificates are in DER."""

    certificates: Sequence[bytes]
    locked_key: bytes | None = field(default=None, repr=False)


def read_jks(data: bytes, password: str | None) -> list[JksEntry]:
    """Return the entries of a store in their order; raise `DamagedError`.

    Without a password the digest is not compared, as in Java.
    """
    if len(data) < _DIGEST_BYTES:
        raise DamagedError("the file is cut off")
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_password_bytes(password) + _WHITENER + content).digest()
        if not hmac.compare_digest(expected, digest):
            raise DamagedError("the password is wrong, or the file is damaged")
    reader = _Reader(content)
    entries = reader.entries()
    if reader.position != len(content):
        raise DamagedError("there are bytes after the last entry")
    return entries


def unlocked_key(locked: bytes, password: str) -> bytes:
    """Return a private key in PKCS 8; raise `DamagedError` if the password is wrong."""
    outer, _ = _der_value(locked, _DER_SEQUENCE)
    # The algorithm: Java writes only one.
    _, rest = _der_value(outer, _DER_SEQUENCE)
    protected, _ = _der_value(rest, _DER_OCTETS)
    if len(protected) < 2 * _DIGEST_BYTES:
        raise DamagedError("a private key is cut off")
    block, hidden = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = _password_bytes(password)
    stream = bytearray()
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), protected[-_DIGEST_BYTES:]):
        raise DamagedError("the password does not decrypt the private key")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _der_value(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first DER value, which must have this tag, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise DamagedError("a private key is not in the format of JKS")
    size, start = data[1], 2
    if size > 0x7F:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise DamagedError("a private key is cut off")
    return data[start : start + size], data[start + size :]


class _Reader:
    """The part of a store before its digest, read from the beginning."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def entries(self) -> list[JksEntry]:
        if self._take(len(JKS_MAGIC)) != JKS_MAGIC:
            raise DamagedError("it does not begin as a JKS store")
        version = self._number()
        if version not in _VERSIONS:
            raise DamagedError(f"its version {version} is unknown")
        return [self._entry(version) for _ in range(self._number())]

    def _entry(self, version: int) -> JksEntry:
        kind = self._number()
        # The alias and the time of creation.
        self._text()
        self._take(8)
        if kind == _TRUSTED_CERTIFICATE:
            return JksEntry((self._certificate(version),))
        if kind == _PRIVATE_KEY:
            locked = self._take(self._number())
            return JksEntry([self._certificate(version) for _ in range(self._number())], locked)
        raise DamagedError(f"an entry has the unknown type {kind}")

    def _certificate(self, version: int) -> bytes:
        if version > 1 and self._text() != _X509.encode():
            raise DamagedError(f"a certificate is not of the type {_X509}")
        return self._take(self._number())

    def _text(self) -> bytes:
        return self._take(int(struct.unpack(">H", self._take(2))[0]))

    def _number(self) -> int:
        return int(struct.unpack(">I", self._take(4))[0])

    def _take(self, size: int) -> bytes:
        if size > len(self._content) - self.position:
            raise DamagedError("the file is cut off")
        self.position += size
        return self._content[self.position - size : self.position]
