"""The reader of PKCS12, the key store format of Java since version 9 and of OpenSSL.

The package cryptography decrypts a store. It returns the first of several keys; the others are found here.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from broker_core.java_stores.entries import OCTETS, SEQUENCE, StoreEntry, StoreError, der_value

_INTEGER, _OBJECT_ID, _SET, _TEXT = 0x02, 0x06, 0x31, 0x1E
_TAGGED: Final = 0xA0
_DATA: Final = bytes.fromhex("2a864886f70d010701")
_LOCKED_KEY: Final = bytes.fromhex("2a864886f70d010c0a0102")
_FRIENDLY_NAME: Final = bytes.fromhex("2a864886f70d010914")


def read_pkcs12(data: bytes, password: str | None) -> list[StoreEntry]:
    """Return the entries of a store, those with keys first; raise `StoreError`, or ImportError without cryptography."""
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    secret = None if password is None else password.encode()
    try:
        opened = load_pkcs12(data, secret)
    except ValueError as error:
        # A wrong password and most damage end the same way.
        raise StoreError(str(error)) from None
    unnamed, entries = count(1), []

    def alias_of(name: str | None) -> str:
        # Java counts the entries without an alias.
        return str(next(unnamed)) if name is None else name.lower()

    stored, keys = list(opened.additional_certs), []
    if opened.key is not None and opened.cert is not None:
        stored.insert(0, opened.cert)
        keys = _several_keys(data, secret, stored) or [(_text(opened.cert.friendly_name), opened.key, opened.cert)]
    others = [each for each in stored if all(each is not own for _, _, own in keys)]
    for alias, key, own in keys:
        chain = _chain(own.certificate, [each.certificate for each in stored])
        unlock = partial(_unlocked, key, password or "")
        entries.append(StoreEntry(alias_of(alias), [_der(each) for each in chain], unlock))
        others = [each for each in others if _is_named(each) or each.certificate not in chain]
    entries.extend(StoreEntry(alias_of(_text(each.friendly_name)), (_der(each.certificate),)) for each in others)
    return entries


def _unlocked(key: Any, store_password: str, password: str) -> bytes:
    """Return a key that was decrypted with the password of its store, which counts as its own password, too."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if password != store_password:
        raise StoreError("the password does not decrypt the private key")
    return bytes(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def _is_named(certificate: Any) -> bool:
    """Return whether a certificate has an alias.

    A certificate of a chain that is trusted, too, is in the store twice. The one of the chain has no name, or from Java
    its subject's.
    """
    name = _text(certificate.friendly_name)
    return name is not None and "=" not in name


def _text(name: bytes | None) -> str | None:
    return None if name is None else name.decode("utf-8", "replace")


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(certificate.public_bytes(Encoding.DER))


def _chain(own: Any, others: list[Any]) -> list[Any]:
    """Order a chain from the key's certificate upwards: OpenSSL requires the order, PKCS12 does not."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        above = [each for each in others if each.subject == chain[-1].issuer and each not in chain]
        if not above:
            break
        chain.append(above[0])
    return chain


def _several_keys(data: bytes, secret: bytes | None, certificates: list[Any]) -> list[tuple[str | None, Any, Any]]:
    """Return the alias, the key and the certificate of each key if the store has more than one."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    found: list[tuple[str | None, Any, Any]] = []
    try:
        locked = list(_locked_keys(data))
        if len(locked) < 2:
            return []
        for alias, content in locked:
            key = load_der_private_key(content, secret)
            certificate = next((each for each in certificates if _is_of(each.certificate, key)), None)
            if certificate is not None:
                found.append((alias, key, certificate))
    except (ValueError, TypeError):
        # Not the form that Java and OpenSSL write, for instance lengths of BER: the first key alone is used.
        return []
    return found


def _is_of(certificate: Any, key: Any) -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm

    with suppress(ValueError, UnsupportedAlgorithm):
        return bool(certificate.public_key() == key.public_key())
    return False


def _locked_keys(data: bytes) -> Iterator[tuple[str | None, bytes]]:
    """Yield the alias and the encrypted content of each key: they are outside the encrypted part of a store."""
    store, _ = der_value(data, SEQUENCE)
    _, rest = der_value(store, _INTEGER)
    signed, _ = der_value(rest, SEQUENCE)
    for part in _sequences(_content(signed)):
        if part[2:].startswith(_DATA):
            for bag in _sequences(_content(part)):
                kind, after = der_value(bag, _OBJECT_ID)
                if kind == _LOCKED_KEY:
                    key, attributes = der_value(after, _TAGGED)
                    yield _alias(attributes), key


def _content(part: bytes) -> bytes:
    """Return the octets in a part of a store, after the identifier of its type."""
    _, rest = der_value(part, _OBJECT_ID)
    tagged, _ = der_value(rest, _TAGGED)
    octets, _ = der_value(tagged, OCTETS)
    return octets


def _sequences(data: bytes) -> Iterator[bytes]:
    rest, _ = der_value(data, SEQUENCE)
    while rest:
        content, rest = der_value(rest, SEQUENCE)
        yield content


def _alias(attributes: bytes) -> str | None:
    if not attributes:
        return None
    content, _ = der_value(attributes, _SET)
    while content:
        attribute, content = der_value(content, SEQUENCE)
        name, values = der_value(attribute, _OBJECT_ID)
        if name == _FRIENDLY_NAME:
            value, _ = der_value(values, _SET)
            return der_value(value, _TEXT)[0].decode("utf-16-be", "replace")
    return None
