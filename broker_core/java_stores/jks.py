"""The reader of JKS, the key store format of Java before version 9.

A store is a sequence of entries, followed by the SHA-1 digest of the password and the entries. Certificates are not
encrypted. A private key is combined with a stream: each block of the stream is the SHA-1 digest of the password and the
block before, and a salt stands before the first. This protects little, so a store needs the permissions of a key.
"""

import hashlib
import hmac
from functools import partial
from typing import Final

from broker_core.java_stores.entries import JKS_MAGIC, OCTETS, SEQUENCE, StoreEntry, StoreError, der_value

_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_VERSIONS: Final = (1, 2)
_X509: Final = "X.509"
# Java adds this text to what it digests, so that the digest is not one of the password alone.
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = hashlib.sha1().digest_size


def read_jks(data: bytes, password: str | None) -> list[StoreEntry]:
    """Return the entries of a store in their order; raise `StoreError`.

    Without a password the digest is not compared, as in Java.
    """
    if len(data) < _DIGEST_BYTES:
        raise StoreError("the file is cut off")
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_password_bytes(password) + _WHITENER + content).digest()
        if not hmac.compare_digest(expected, digest):
            raise StoreError("the password is wrong, or the file is damaged")
    reader = _Reader(content)
    entries = reader.entries()
    if reader.position != len(content):
        raise StoreError("there are bytes after the last entry")
    return entries


def _unlocked_key(locked: bytes, password: str) -> bytes:
    """Return a private key in PKCS 8; raise `StoreError` if the password is wrong."""
    outer, _ = der_value(locked, SEQUENCE)
    # The algorithm: Java writes only one.
    _, rest = der_value(outer, SEQUENCE)
    protected, _ = der_value(rest, OCTETS)
    if len(protected) < 2 * _DIGEST_BYTES:
        raise StoreError("a private key is cut off")
    block, hidden = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = _password_bytes(password)
    stream = bytearray()
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), protected[-_DIGEST_BYTES:]):
        raise StoreError("the password does not decrypt the private key")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    """The part of a store before its digest, read from the beginning."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def entries(self) -> list[StoreEntry]:
        if self._take(len(JKS_MAGIC)) != JKS_MAGIC:
            raise StoreError("it does not begin as a JKS store")
        version = self._number()
        if version not in _VERSIONS:
            raise StoreError(f"its version {version} is unknown")
        return [self._entry(version) for _ in range(self._number())]

    def _entry(self, version: int) -> StoreEntry:
        kind = self._number()
        alias = self._text().decode("utf-8", "replace")
        # The time of creation.
        self._take(8)
        if kind == _TRUSTED_CERTIFICATE:
            return StoreEntry(alias, (self._certificate(version),))
        if kind == _PRIVATE_KEY:
            locked = self._take(self._number())
            certificates = [self._certificate(version) for _ in range(self._number())]
            return StoreEntry(alias, certificates, partial(_unlocked_key, locked))
        raise StoreError(f"an entry has the unknown type {kind}")

    def _certificate(self, version: int) -> bytes:
        if version > 1 and self._text() != _X509.encode():
            raise StoreError(f"a certificate is not of the type {_X509}")
        return self._take(self._number())

    def _text(self) -> bytes:
        return self._take(int.from_bytes(self._take(2), "big"))

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def _take(self, size: int) -> bytes:
        if size > len(self._content) - self.position:
            raise StoreError("the file is cut off")
        self.position += size
        return self._content[self.position - size : self.position]
