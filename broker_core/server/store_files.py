"""The files of JKS and PKCS12 stores that settings of listeners name, used as Java uses them."""

import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.errors import ConfigError
from broker_core.java_stores.entries import StoreEntry, StoreError, private_key_pem, store_format
from broker_core.java_stores.reader import listed, preferred, read_store

KEY_STORE: Final = "ssl.keystore."
TRUST_STORE: Final = "ssl.truststore."
_LONGEST_MAGIC: Final = 4
_TYPES: Final = ("JKS", "PKCS12")


class StoreFileError(ConfigError):
    """A store that cannot be used; the message is the reason and what to do, without a password."""


class UnreadableStoreError(StoreFileError):
    """A store that Java cannot read either."""


class LockedKeyError(StoreFileError):
    """A key that the password does not decrypt, in a store of a format."""

    def __init__(self, message: str, store_format: str) -> None:
        super().__init__(message)
        self.store_format = store_format


class StoredCertificate(NamedTuple):
    """A certificate in DER, and the alias of its entry."""

    alias: str
    certificate: bytes


@dataclass(frozen=True, slots=True)
class JavaStore:
    """The content of a store: its format, and its entries in the order in which Java lists them."""

    store_format: str
    entries: Sequence[StoreEntry]

    @property
    def certificates(self) -> list[StoredCertificate]:
        return [StoredCertificate(each.alias, each.certificates[0]) for each in self.entries if each.certificates]

    @property
    def trusted(self) -> bytes:
        """The certificates that Java trusts if this is a trust store: those of keys, too, but not their chains."""
        return b"".join(each.certificate for each in self.certificates)


def is_java_store(store_type: str, path: str) -> bool:
    """Return whether a store is one of Java's: by its type, or by its content if it has no type.

    Raises OSError and ValueError for a file that cannot be read.
    """
    if store_type:
        return store_type.upper() != "PEM"
    return content_format(path) is not None


def content_format(path: str) -> str | None:
    """Return the format of Java's that a file has: JKS, PKCS12 or JCEKS, or None; raise OSError and ValueError."""
    with open(path, "rb") as file:
        return store_format(file.read(_LONGEST_MAGIC))


def read_java_store(store: str, store_type: str, path: str, password: str | None) -> JavaStore:
    """Return the content of a store; raise `StoreFileError`.

    Args:
        store: How the names of its settings begin.
        store_type: Its type, empty for Kafka's default. JKS and PKCS12 mean the same: the content decides.
        path: Its file.
        password: Its password; without one the integrity of a JKS store is not checked, as in Java.
    """
    how = f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"
    named = store_type.upper() or "JKS"
    if named == "JCEKS":
        raise StoreFileError(f"{store}type is JCEKS, which is not read here: convert the store with {how}")
    if named not in _TYPES:
        raise UnreadableStoreError(
            f"{store}type is {store_type}: use JKS, PKCS12 or PEM, and convert other stores with {how}"
        )
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableStoreError(error.strerror or type(error).__name__) from None
    except ValueError:
        raise UnreadableStoreError("this is no path") from None
    found = store_format(data)
    if found == "JCEKS":
        raise StoreFileError(f"it is a JCEKS store, which is not read here: convert it with {how}")
    if found is None:
        raise UnreadableStoreError(f"it is neither JKS nor PKCS12: set {store}type=PEM if it is PEM")
    try:
        return JavaStore(found, listed(read_store(data, password), found))
    except ImportError:
        raise StoreFileError(
            "it is a PKCS12 store, and the package cryptography, which reads it, is not installed: run pip install "
            "cryptography"
        ) from None
    except StoreError as error:
        if password is None:
            # Java ignores what it cannot decrypt, and trusts no client then.
            raise StoreFileError(f"it cannot be read as {found} without a password: set {store}password") from None
        raise UnreadableStoreError(
            f"it cannot be read as {found}: {error}; set {store}password to the password of a complete file"
        ) from None


class KeyAndChain(NamedTuple):
    """A private key without a password, and its certificate chain, both in PEM."""

    key: str
    chain: str


def keys_of(store: JavaStore, password: str) -> list[KeyAndChain]:
    """Return the keys of a store in the order in which Java looks for one; raise `LockedKeyError`.

    As in Java, one password decrypts all of them.
    """
    found: dict[str, KeyAndChain] = {}
    with_keys = [each for each in store.entries if each.unlock is not None and each.certificates]
    for entry in with_keys:
        assert entry.unlock is not None
        try:
            key = private_key_pem(entry.unlock(password))
        except StoreError:
            raise LockedKeyError(
                f"the password does not decrypt the private key {entry.alias!r}: set ssl.key.password, if it is not "
                "ssl.keystore.password",
                store.store_format,
            ) from None
        found[entry.alias] = KeyAndChain(key, "".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates)))
    return [found[each.alias] for each in preferred(with_keys)]


def load_keys(context: ssl.SSLContext, keys: Sequence[KeyAndChain]) -> None:
    """Let a context use the first key of each kind, such as RSA; raise OSError.

    Raises `StoreFileError` if there is none.
    """
    if not keys:
        raise StoreFileError("it contains no private key with a certificate: name the store with the broker's key")
    # OpenSSL uses the last key of each kind.
    for each in reversed(keys):
        load_chain(context, each.chain, each.key, "")


def load_chain(context: ssl.SSLContext, chain: str, key: str, password: str) -> None:
    """Let a context use a certificate chain and its key, both as PEM; raise OSError."""
    # Python reads keys from files only. The folder is readable by this user only, and removed after loading.
    with tempfile.TemporaryDirectory() as folder:
        chain_file, key_file = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain_file.write_text(chain, encoding="utf-8")
        key_file.touch(mode=0o600)
        key_file.write_text(key, encoding="utf-8")
        # With a function OpenSSL never prompts for a password at the terminal.
        context.load_cert_chain(chain_file, key_file, password=lambda: password)
