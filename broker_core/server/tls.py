"""TLS contexts from Kafka's settings, which name stores, in JKS, PKCS12 or PEM, or contain PEM text."""

import base64
import re
import ssl
from pathlib import Path
from typing import Final

from broker_core.cipher_suites import usable_suites
from broker_core.errors import ConfigError
from broker_core.server.listeners import ListenerPlan
from broker_core.server.store_files import (
    KEY_STORE,
    TRUST_STORE,
    StoredCertificate,
    content_format,
    is_java_store,
    keys_of,
    load_chain,
    load_keys,
    read_java_store,
)
from broker_core.settings.values import split_list

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
    """Return a TLS context of the listener without certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in _choose_suites(context, plan)]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_mode = _CLIENT_AUTH[plan.client_auth]
    # As in Java, a trusted certificate need not be that of a root: it may be a client's own.
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
            # OpenSSL does without those that it does not have.
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
    """Return whether a text contains a certificate in PEM."""
    return _CERTIFICATE.search(text) is not None


def load_trust(context: ssl.SSLContext, plan: ListenerPlan) -> None:
    """Load the certificates that those of clients are checked with, if there are any; raise `ConfigError`."""
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
    """Raise `ConfigError` if a file is one of Java's stores, which has another type; raise OSError."""
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
