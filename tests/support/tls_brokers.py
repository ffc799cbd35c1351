"""Brokers of either kind with TLS listeners: a key store as text, one in a file, and one that limits cipher suites."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from tests.support.listener_brokers import AT, listening
from tests.support.secured import jaas

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TEXT": "SSL", "FILE": "SSL", "LIMITED": "SSL"}
UNIT = "Brokers, all"
SUITE = "ECDHE-ECDSA-AES128-GCM-SHA256"


@dataclass(frozen=True)
class KeyStore:
    """A key and its certificates as PEM."""

    key: str
    chain: str


@dataclass(frozen=True)
class TlsBroker:
    """The addresses of a broker by listener, the authority of its certificates, and its key store's file."""

    name: str
    addresses: dict[str, str]
    authority: trustme.CA
    file: Path


def issue(authority: trustme.CA, *names: str, unit: str = UNIT) -> KeyStore:
    """Return a new key and certificate for a broker; the key has the form that Java reads."""
    certificate = authority.issue_cert(*(names or (AT, "localhost")), organization_unit_name=unit)
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return KeyStore(text, certificate.cert_chain_pems[0].bytes().decode())


@contextmanager
def tls_broker(name: str, folder: Path) -> Iterator[TlsBroker]:
    """Run a broker of this kind; raises `Unavailable` if Apache Kafka cannot run."""
    authority = trustme.CA()
    text, in_file = issue(authority), issue(authority)
    file = folder / "store.pem"
    file.write_text(in_file.key + in_file.chain, encoding="utf-8")
    trusted = authority.cert_pem.bytes().decode()
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": jaas("PLAIN", 'user_alice="secret"'),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256", ""),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.name.text.ssl.client.auth": "required",
        "listener.name.text.ssl.keystore.key": text.key,
        "listener.name.text.ssl.keystore.certificate.chain": text.chain,
        "listener.name.text.ssl.truststore.certificates": trusted,
        "listener.name.file.ssl.keystore.location": str(file),
        "listener.name.limited.ssl.keystore.key": text.key,
        "listener.name.limited.ssl.keystore.certificate.chain": text.chain,
        "listener.name.limited.ssl.allow.dn.changes": "true",
        "listener.name.limited.ssl.allow.san.changes": "true",
        "listener.name.limited.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    }
    with listening(name, PROTOCOLS, settings, folder) as addresses:
        yield TlsBroker(name, addresses, authority, file)
