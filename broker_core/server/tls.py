"""TLS contexts from Kafka's settings, which name stores, in JKS, PKCS12 or PEM, or contain PEM text."""

import base64
import re
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.cipher_suites import usable_suites
from broker_core.errors import ConfigError
from broker_core.java_stores.entries import StoreEntry, StoreError, private_key_pem, store_format
from broker_core.java_stores.reader import listed, preferred, read_store
from broker_core.server.listeners import ListenerPlan
from broker_core.settings.values import split_list

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
        """The certificates that Java trusts in a trust store: of keys, too, but not their chains."""
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
    """Return the content of a store, whose settings' names begin with `store`; raise `StoreFileError`.

    The types JKS, which is Kafka's default, and PKCS12 mean the same: the content decides. Without a password the
    integrity of a JKS store is not checked, as in Java.
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


# A private key without a password, and its certificate chain, both in PEM.
KeyAndChain = tuple[str, str]


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
        found[entry.alias] = (key, "".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates)))
    return [found[each.alias] for each in preferred(with_keys)]


def load_keys(context: ssl.SSLContext, keys: Sequence[KeyAndChain]) -> None:
    """Let a context use the first key of each kind, such as RSA; raise OSError.

    Raises `StoreFileError` if there is none.
    """
    if not keys:
        raise StoreFileError("it contains no private key with a certificate: name the store with the broker's key")
    # OpenSSL uses the last key of each kind.
    for key, chain in reversed(keys):
        load_chain(context, chain, key, "")


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


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# Kafka's alias of a certificate in PEM, which has none.
_PEM_ALIAS: Final = "kafka"
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----", re.DOTALL
)


def tls_context(plan: ListenerPlan) -> tuple[ssl.SSLContext, list[StoredCertificate]]:
    """Return the listener's TLS context, and the certificates in its key store.

    Raises `ConfigError` if the settings are invalid, without quoting a key.
    """
    context = empty_context(plan)
    certificates = load_identity(context, plan)
    load_trust(context, plan)
    return context, certificates


def empty_context(plan: ListenerPlan) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in _choose_suites(context, plan)]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_mode = _CLIENT_AUTH[plan.client_auth]
    # As in Java, a trusted certificate need not be a root's: it may be a client's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _choose_suites(context: ssl.SSLContext, plan: ListenerPlan) -> list[str]:
    """Choose the cipher suites of TLS 1.2, and return the versions that have a suite; raise `ConfigError`.

    Python cannot choose among the suites of TLS 1.3.
    """
    versions, suites = split_list(plan.config.ssl_enabled_protocols), split_list(plan.config.ssl_cipher_suites)
    if not suites:
        return versions
    try:
        usable = usable_suites(suites)
    except ValueError as error:
        raise ConfigError(
            f"listener {plan.name}: ssl.cipher.suites has the unknown suite {str(error)!r}; write names such as "
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, with commas between them"
        ) from None
    available = usable.versions
    if usable.older:
        try:
            # OpenSSL does without suites that it does not have.
            context.set_ciphers(":".join(usable.older))
        except ssl.SSLError:
            available -= {"TLSv1.2"}
    if available.isdisjoint(versions):
        raise ConfigError(
            f"listener {plan.name}: ssl.cipher.suites has no suite that OpenSSL has for ssl.enabled.protocols: name "
            f"suites of {' or '.join(versions)}"
        )
    return [version for version in versions if version in available]


def load_identity(context: ssl.SSLContext, plan: ListenerPlan) -> list[StoredCertificate]:
    """Load the broker's keys and certificates, and return the certificates; raise `ConfigError`."""
    config = plan.config
    path, password = config.ssl_keystore_location, config.ssl_keystore_password
    if not path and not (config.ssl_keystore_certificate_chain and config.ssl_keystore_key):
        raise ConfigError(
            f"listener {plan.name} has no certificate: give ssl.keystore.location (a JKS, PKCS12 or PEM file with key "
            "and chain), or ssl.keystore.certificate.chain and ssl.keystore.key (their text)"
        )
    try:
        if path and is_java_store(config.ssl_keystore_type, path):
            if not password:
                raise ConfigError("ssl.keystore.password is not set: a JKS or PKCS12 key store needs its password")
            store = read_java_store(KEY_STORE, config.ssl_keystore_type, path, password)
            load_keys(context, keys_of(store, config.ssl_key_password or password))
            return store.certificates
        _check_is_pem(KEY_STORE, path)
        if password:
            raise ConfigError(
                "ssl.keystore.password is set, and this is neither JKS nor PKCS12: name another file, or remove the "
                "password for PEM, and set ssl.key.password if the key is encrypted"
            )
        return load_pem_identity(context, plan)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificate and key of listener {plan.name} ({_place(KEY_STORE, path)}) cannot be loaded: "
            f"{_reason(error)}"
        ) from None


def load_pem_identity(context: ssl.SSLContext, plan: ListenerPlan) -> list[StoredCertificate]:
    """Load the broker's key and certificate in PEM; raise OSError or ValueError.

    Return the certificate, or nothing where it cannot be found: OpenSSL reads more forms of PEM than this module.
    """
    config = plan.config
    if config.ssl_keystore_location:
        # With a function OpenSSL never prompts for a password at the terminal.
        context.load_cert_chain(config.ssl_keystore_location, password=lambda: config.ssl_key_password)
        text = Path(config.ssl_keystore_location).read_text(encoding="utf-8", errors="replace")
    else:
        text = config.ssl_keystore_certificate_chain
        load_chain(context, text, config.ssl_keystore_key, config.ssl_key_password)
    found = _CERTIFICATE.search(text)
    return [] if found is None else [StoredCertificate(_PEM_ALIAS, base64.b64decode(found[1]))]


def has_certificate(text: str) -> bool:
    return _CERTIFICATE.search(text) is not None


def load_trust(context: ssl.SSLContext, plan: ListenerPlan) -> None:
    """Load the certificates that check the clients' own, if there are any; raise `ConfigError`."""
    config = plan.config
    if context.verify_mode is ssl.CERT_NONE:
        return
    path, password = config.ssl_truststore_location, config.ssl_truststore_password
    try:
        if path and is_java_store(config.ssl_truststore_type, path):
            trusted = read_java_store(TRUST_STORE, config.ssl_truststore_type, path, password or None).trusted
            if not trusted:
                raise ConfigError("it contains no certificate: add one with keytool -importcert")
            context.load_verify_locations(cadata=trusted)
            return
        _check_is_pem(TRUST_STORE, path)
        if password:
            raise ConfigError(
                "ssl.truststore.password is set, and this is neither JKS nor PKCS12: name another file, or remove "
                "the password for PEM"
            )
        if path:
            context.load_verify_locations(cafile=path)
        elif config.ssl_truststore_certificates:
            context.load_verify_locations(cadata=config.ssl_truststore_certificates)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the trusted certificates of listener {plan.name} ({_place(TRUST_STORE, path)}) cannot be loaded: "
            f"{_reason(error)}"
        ) from None


def _place(store: str, path: str) -> str:
    return f"{store}location={path}" if path else "given as text"


def _check_is_pem(store: str, path: str) -> None:
    found = content_format(path) if path else None
    if found is not None:
        raise ConfigError(f"{store}type is PEM, and it is a {found} store: set {store}type={found}")


def _reason(error: Exception) -> str:
    """Return the reason for the error, without its text, which may quote the key."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return error.reason or "there is no PEM in it, or the password is another"
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
