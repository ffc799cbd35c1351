"""Java key stores, PKCS12 and JKS, converted to PEM in memory; the content of a file decides which it is."""

import ssl
from pathlib import Path
from typing import NamedTuple

from broker_core.java_stores.entries import StoreEntry, StoreError, private_key_pem, store_format
from broker_core.java_stores.reader import read_store
from spark_eos.errors import OptionError
from spark_eos.options.key_stores import KeyStores


class StoredIdentity(NamedTuple):
    """A certificate chain, the client's own certificate first, and its key without encryption, both as PEM."""

    certificates: str
    key: str


def is_java_store(path: str) -> bool:
    """Return whether a file is a PKCS12 or JKS store; raise `OSError`."""
    return store_format(Path(path).read_bytes()) is not None


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
        # A file that has changed since it was found to be a store may be anything.
        self._format = store_format(self._data) or "PKCS12"
        if self._format == "JCEKS":
            raise OptionError(
                f"{self._named} is a JCEKS store",
                remedy="Convert it with `keytool -importkeystore ... -deststoretype PKCS12`",
            )

    def trusted(self) -> list[str]:
        trusted = (each for each in self._entries() if each.unlock is None)
        found = [ssl.DER_cert_to_PEM_cert(der) for each in trusted for der in each.certificates]
        if not found:
            raise OptionError(
                f"{self._named} contains no trusted certificate", remedy="Add one with `keytool -importcert`"
            )
        return found

    def identity(self, key_password: str | None) -> StoredIdentity:
        # A PKCS12 store has one password.
        password = self._password if self._format == "PKCS12" else key_password or self._password
        for entry in self._entries():
            if entry.unlock is None or not entry.certificates:
                continue
            try:
                key = entry.unlock(password or "")
            except StoreError:
                raise OptionError(
                    f"{self._named} has a private key that the password does not decrypt",
                    remedy=f"Set {self._settings.setting('ssl.key.password')}, if it is not "
                    f"{self._settings.setting('ssl.keystore.password')}",
                ) from None
            return StoredIdentity("".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates)), private_key_pem(key))
        raise OptionError(
            f"{self._named} contains no private key with a certificate",
            remedy="Set the option to the store with the client's key",
        )

    def _entries(self) -> list[StoreEntry]:
        try:
            return read_store(self._data, self._password)
        except ImportError:
            raise OptionError(
                f"{self._named} needs the package cryptography, which is not installed",
                remedy="Install cryptography on the driver and on every executor, or convert the store to PEM",
            ) from None
        except StoreError as error:
            raise self._unreadable(self._format, str(error)) from None

    def _unreadable(self, kind: str, reason: str) -> OptionError:
        return OptionError(
            f"{self._named} cannot be read as {kind}: {reason}",
            checked="No password is set" if self._password is None else "",
            remedy=f"Set {self._settings.setting(f'{self._setting}.password')} to the password of a complete file",
        )
