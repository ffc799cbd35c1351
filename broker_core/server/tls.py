"""TLS contexts from Kafka's settings, which name PEM files or contain their text."""

import ssl
import tempfile
from pathlib import Path

from broker_core.errors import ConfigError
from broker_core.server.listeners import ListenerPlan

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_HOW_TO_PEM = (
    "only PEM is read here: openssl pkcs12 -in store.p12 -nodes -out store.pem makes it from PKCS12, "
    "keytool -importkeystore -deststoretype PKCS12 makes that from JKS"
)


def tls_context(plan: ListenerPlan) -> ssl.SSLContext:
    """Return the listener's TLS context; raise `ConfigError` if the settings are invalid, without quoting a key."""
    context = empty_context(plan)
    load_identity(context, plan)
    load_trust(context, plan)
    return context


def empty_context(plan: ListenerPlan) -> ssl.SSLContext:
    """Return a TLS context of the listener without certificates; raise `ConfigError` for stores that are not PEM."""
    config = plan.config
    for key, store_type in (
        ("ssl.keystore.type", config.ssl_keystore_type),
        ("ssl.truststore.type", config.ssl_truststore_type),
    ):
        if store_type.upper() != "PEM":
            raise ConfigError(f"{key}={store_type}: {_HOW_TO_PEM}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name.strip()] for name in config.ssl_enabled_protocols.split(",")]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_mode = _CLIENT_AUTH[plan.client_auth]
    return context


def load_identity(context: ssl.SSLContext, plan: ListenerPlan) -> None:
    """Load the broker's key and certificates; raise `ConfigError`."""
    config = plan.config
    password = config.ssl_key_password
    try:
        if config.ssl_keystore_location:
            # With a function OpenSSL never prompts for a password at the terminal.
            context.load_cert_chain(config.ssl_keystore_location, password=lambda: password)
            return
        if not (config.ssl_keystore_certificate_chain and config.ssl_keystore_key):
            raise ConfigError(
                f"listener {plan.name} has no certificate: give ssl.keystore.location (a PEM file with key and chain), "
                "or ssl.keystore.certificate.chain and ssl.keystore.key (their text)"
            )
        # Python reads keys from files only. The folder is readable by this user only, and removed after loading.
        with tempfile.TemporaryDirectory() as folder:
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            chain.write_text(config.ssl_keystore_certificate_chain, encoding="utf-8")
            key.touch(mode=0o600)
            key.write_text(config.ssl_keystore_key, encoding="utf-8")
            context.load_cert_chain(chain, key, password=lambda: password)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        where = config.ssl_keystore_location or "given as text"
        raise ConfigError(
            f"the certificate and key of listener {plan.name} ({where}) cannot be loaded: {_reason(error)}"
        ) from None


def load_trust(context: ssl.SSLContext, plan: ListenerPlan) -> None:
    """Load the certificates that those of clients are checked with, if there are any; raise `ConfigError`."""
    config = plan.config
    if context.verify_mode is ssl.CERT_NONE:
        return
    try:
        if config.ssl_truststore_location:
            context.load_verify_locations(cafile=config.ssl_truststore_location)
        elif config.ssl_truststore_certificates:
            context.load_verify_locations(cadata=config.ssl_truststore_certificates)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        where = config.ssl_truststore_location or "given as text"
        raise ConfigError(
            f"the trusted certificates of listener {plan.name} ({where}) cannot be loaded: {_reason(error)}"
        ) from None


def _reason(error: Exception) -> str:
    """Return the reason for the error, without its text, which may quote the key."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "there is no PEM in it, or the password is another"
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
