"""The TLS context of a client, from files or PEM text, created again when a file has changed.

The context is created where it is used, because it cannot be pickled and files are read on the machine that connects.
"""

import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from broker_core.java_stores.entries import StoreEntry, StoreError, private_key_pem, store_format
from broker_core.java_stores.reader import read_store
from spark_eos.errors import OptionError
from spark_eos.options.client import ClientOptions
from spark_eos.options.key_stores import TRUST_STORE, KeyStores, TlsLimits

LOG: Final = logging.getLogger(__name__)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_Stamp: TypeAlias = tuple[int, int, int] | None


class TlsContext:
    """The TLS context of each new connection, with the current certificates and key.

    Certificates are replaced while a query runs, for instance by cert-manager, and the old ones expire. A file that did
    not change is not read again.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._seen = self._stamps()
        self._context = _build(options)

    def wrap_socket(
        self, sock: socket.socket, *, server_hostname: str | None, do_handshake_on_connect: bool
    ) -> ssl.SSLSocket:
        """Begin TLS on a socket: the only method of `ssl.SSLContext` that kafka-python uses."""
        return self._current().wrap_socket(
            sock, server_hostname=server_hostname, do_handshake_on_connect=do_handshake_on_connect
        )

    def _current(self) -> ssl.SSLContext:
        stamps = self._stamps()
        if stamps != self._seen:
            try:
                self._context = _build(self._options)
            except OptionError as error:
                # One file may be replaced before the others, or be incomplete: the next connection tries again.
                LOG.warning("The changed TLS files cannot be used; the previous ones remain in use: %s", error)
            else:
                # From before the files were read: a file that changes in the meantime is read again.
                self._seen = stamps
        return self._context

    def _stamps(self) -> list[_Stamp]:
        stores = self._options.ssl_stores
        return [_stamp(path) for path in (stores.trusted_path, stores.certificate_path, stores.key_path)]


def tls_context(options: ClientOptions) -> TlsContext | None:
    return TlsContext(options) if options.security_protocol.endswith("SSL") else None


def _stamp(path: str | None) -> _Stamp:
    """Return a value that changes when a file does; links are followed, because Kubernetes replaces those."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _build(options: ClientOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, options.ssl_limits)
    context.check_hostname = options.ssl_check_hostname
    trust(context, options.ssl_stores)
    identify(context, options.ssl_stores)
    return context


def _limit(context: ssl.SSLContext, limits: TlsLimits) -> None:
    context.minimum_version = _VERSIONS[limits.versions[0]]
    context.maximum_version = _VERSIONS[limits.versions[-1]]
    if limits.ciphers:
        try:
            context.set_ciphers(":".join(limits.ciphers))
        except ssl.SSLError as error:
            raise OptionError(
                f"OpenSSL has none of the suites of kafka.ssl.cipher.suites: {', '.join(limits.ciphers)}",
                remedy="Name suites that `openssl ciphers` prints, or remove the option",
            ) from error


def trust(context: ssl.SSLContext, stores: KeyStores) -> None:
    """Trust what the settings name, or else the system's authorities; raise `OptionError`."""
    path, text = stores.trusted_path, stores.trusted_pem
    if path is None and text is None:
        context.load_default_certs()
        return
    try:
        if path is not None and is_java_store(path):
            # Without a password the integrity of a JKS store is not checked, as in Java.
            store = _Store(stores, "ssl.truststore", path, stores.trusted_password)
            path, text = None, store.trusted() + (text or "")
        context.load_verify_locations(cafile=path, cadata=text)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            f"Cannot read the trusted certificates: {error}",
            checked=f"{stores.trusted_path} ({stores.setting(TRUST_STORE)})",
            remedy="Use a PEM, PKCS12 or JKS file that exists on the driver and on every executor",
        ) from error


def identify(context: ssl.SSLContext, stores: KeyStores) -> None:
    """Use the client's certificate, if the settings name one; raise `OptionError`."""
    certificate_text, key_text, path = stores.certificate_pem, stores.key_pem, stores.certificate_path
    if path is None and certificate_text is None:
        return
    try:
        if certificate_text is None and path is not None and is_java_store(path):
            store = _Store(stores, "ssl.keystore", path, stores.keystore_password)
            certificate_text, key_text = store.identity(stores.key_password)
        with _as_file(certificate_text, path) as certificate, _as_file(key_text, stores.key_path) as key:
            # The empty password keeps OpenSSL from prompting on the terminal if the key is encrypted.
            context.load_cert_chain(certificate or "", key, stores.key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            f"Cannot read the client certificate or its key: {error}",
            checked=f"{path} ({stores.setting('ssl.keystore.location')}), key at {stores.key_path}",
            remedy="Use PEM, PKCS12 or JKS files that exist on the driver and every executor, and set "
            f"{stores.setting('ssl.key.password')} if the key is encrypted",
        ) from error


@contextmanager
def _as_file(pem: str | None, path: str | None) -> Iterator[str | None]:
    """Return a file for OpenSSL: the given one, or a temporary one with PEM text that only this user can read."""
    if pem is None:
        yield path
        return
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(pem)
        yield name
    finally:
        os.unlink(name)


def is_java_store(path: str) -> bool:
    return store_format(Path(path).read_bytes()) is not None


class _Store:
    """One Java key store, converted to PEM in memory, with the password to open it; errors do not show the password."""

    def __init__(self, stores: KeyStores, setting: str, path: str, password: str | None) -> None:
        self._settings = stores
        self._setting = setting
        self._password = password
        self._named = f"{path} ({stores.setting(f'{setting}.location')})"
        self._data = Path(path).read_bytes()
        # A file that has changed since it was found to be a store may be anything.
        self._format = store_format(self._data) or "PKCS12"
        if self._format == "JCEKS":
            raise OptionError(
                f"{self._named} is a JCEKS store",
                remedy="Convert it with `keytool -importkeystore ... -deststoretype PKCS12`",
            )

    def trusted(self) -> str:
        """Return the certificates as PEM."""
        trusted = (each for each in self._entries() if each.unlock is None)
        found = [ssl.DER_cert_to_PEM_cert(der) for each in trusted for der in each.certificates]
        if not found:
            raise OptionError(
                f"{self._named} contains no trusted certificate", remedy="Add one with `keytool -importcert`"
            )
        return "".join(found)

    def identity(self, key_password: str | None) -> tuple[str, str]:
        """Return the chain, the client's own certificate first, and its key without encryption, both as PEM."""
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
            return "".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates)), private_key_pem(key)
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
            raise OptionError(
                f"{self._named} cannot be read as {self._format}: {error}",
                checked="No password is set" if self._password is None else "",
                remedy=f"Set {self._settings.setting(f'{self._setting}.password')} to the password of a complete file",
            ) from None
