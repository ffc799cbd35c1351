"""Java key stores, PKCS12 and JKS, converted to PEM in memory.

Java reads either format under either type, and most files named `.jks` are PKCS12 since Java 9, so the content decides.
"""

import base64
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_eos.client.jks import JKS_MAGIC, DamagedError, JksEntry, read_jks, unlocked_key
from spark_eos.errors import OptionError
from spark_eos.options.key_stores import KeyStores

_JCEKS: Final = b"\xce\xce\xce\xce"
# The beginning of a DER sequence of more than 127 bytes, as PKCS12 is.
_PKCS12: Final = (b"\x30\x80", b"\x30\x81", b"\x30\x82", b"\x30\x83", b"\x30\x84")


class StoredIdentity(NamedTuple):
    """A certificate chain, the client's own certificate first, and its key without encryption, both as PEM."""

    certificates: str
    key: str


def is_java_store(path: str) -> bool:
    """Return whether a file is a PKCS12 or JKS store; raise `OSError`."""
    return Path(path).read_bytes().startswith((JKS_MAGIC, _JCEKS, *_PKCS12))


def trusted_certificates(stores: KeyStores) -> str:
    """Return the certificates of a trust store as PEM; raise `OptionError` or `OSError`.

    Without a password the integrity of a JKS store is not checked, as in Java.
    """
    return "".join(_Store(stores, "ssl.truststore", stores.trusted_path, stores.trusted_password).trusted())


def identity(stores: KeyStores) -> StoredIdentity:
    """Return the key and the certificate chain of a key store; raise `OptionError` or `OSError`."""
    store = _Store(stores, "ssl.keystore", stores.certificate_path, stores.keystore_password)
    return store.identity(stores.key_password)


class _Store:
    """One file, with the password to open it; errors do not show the password."""

    def __init__(self, stores: KeyStores, setting: str, path: str | None, password: str | None) -> None:
        self._settings = stores
        self._setting = setting
        self._password = password
        self._named = f"{path} ({stores.setting(f'{setting}.location')})"
        self._data = Path(path or "").read_bytes()
        self.is_jks = self._data.startswith(JKS_MAGIC)
        if self._data.startswith(_JCEKS):
            raise OptionError(
                f"{self._named} is a JCEKS store",
                remedy="Convert it with `keytool -importkeystore ... -deststoretype PKCS12`",
            )

    def trusted(self) -> list[str]:
        """Return the certificates of trusted entries."""
        if self.is_jks:
            trusted = (each for each in self._open_jks() if each.locked_key is None)
            found = [ssl.DER_cert_to_PEM_cert(der) for each in trusted for der in each.certificates]
        else:
            found = self._pkcs12_trusted()
        if not found:
            raise OptionError(
                f"{self._named} contains no trusted certificate", remedy="Add one with `keytool -importcert`"
            )
        return found

    def identity(self, key_password: str | None) -> StoredIdentity:
        """Return the first private key and its chain."""
        found = self._jks_identity(key_password or self._password) if self.is_jks else self._pkcs12_identity()
        if found is None:
            raise OptionError(
                f"{self._named} contains no private key with a certificate",
                remedy="Set the option to the store with the client's key",
            )
        return found

    def _pkcs12_trusted(self) -> list[str]:
        opened = self._open_pkcs12()
        found = [each.certificate for each in opened.additional_certs]
        if opened.cert is not None:
            # The chain above a client's own certificate is there once more if it is trusted, too.
            for each in _chain(opened.cert.certificate, found)[1:]:
                found.remove(each)
        return [_pem(each) for each in found]

    def _pkcs12_identity(self) -> StoredIdentity | None:
        opened = self._open_pkcs12()
        if opened.key is None or opened.cert is None:
            return None
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        chain = _chain(opened.cert.certificate, [each.certificate for each in opened.additional_certs])
        return StoredIdentity("".join(map(_pem, chain)), key)

    def _open_pkcs12(self) -> Any:
        try:
            from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
        except ImportError:
            raise OptionError(
                f"{self._named} needs the package cryptography, which is not installed",
                remedy="Install eos-kafka[pkcs12] on the driver and on every executor, or convert the store to PEM",
            ) from None
        try:
            return load_pkcs12(self._data, None if self._password is None else self._password.encode())
        except ValueError as error:
            # A wrong password and most damage end the same way.
            raise self._unreadable("PKCS12", str(error)) from None

    def _jks_identity(self, key_password: str | None) -> StoredIdentity | None:
        for entry in self._open_jks():
            if entry.locked_key is None or not entry.certificates:
                continue
            try:
                key = unlocked_key(entry.locked_key, key_password or "")
            except DamagedError:
                raise OptionError(
                    f"{self._named} has a private key that the password does not decrypt",
                    remedy=f"Set {self._settings.setting('ssl.key.password')}, if it is not "
                    f"{self._settings.setting('ssl.keystore.password')}",
                ) from None
            return StoredIdentity("".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates)), _private_key_pem(key))
        return None

    def _open_jks(self) -> list[JksEntry]:
        try:
            return read_jks(self._data, self._password)
        except DamagedError as error:
            raise self._unreadable("JKS", str(error)) from None

    def _unreadable(self, kind: str, reason: str) -> OptionError:
        return OptionError(
            f"{self._named} cannot be read as {kind}: {reason}",
            checked="No password is set" if self._password is None else "",
            remedy=f"Set {self._settings.setting(f'{self._setting}.password')} to the password of a complete file",
        )


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.public_bytes(Encoding.PEM).decode())


def _chain(own: Any, others: list[Any]) -> list[Any]:
    """Order a chain from the client's certificate upwards: OpenSSL requires the order, PKCS12 does not."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        above = [each for each in others if each.subject == chain[-1].issuer and each not in chain]
        if not above:
            break
        chain.append(above[0])
    return chain


def _private_key_pem(pkcs8: bytes) -> str:
    body = base64.encodebytes(pkcs8).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"
