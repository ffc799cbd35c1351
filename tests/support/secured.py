"""Brokers of either kind with a listener of each protocol, from the same settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from tests.support.listener_brokers import AT, listening

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
    "TLS": "SSL",
    "SHORT": "SASL_PLAINTEXT",
}
# The lifetime of a session at the listener SHORT.
REAUTH_MS = 1500
MAX_RECEIVE_BYTES = 10_000
_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def jaas(mechanism: str, options: str) -> str:
    """Return a login module's line as in Kafka's documentation."""
    return f"org.apache.kafka.common.security.{_MODULES[mechanism]} required {options};"


@dataclass(frozen=True)
class Secured:
    """The addresses of a secured broker, and the authority that its clients trust."""

    name: str
    addresses: dict[str, str]
    authority: trustme.CA

    @property
    def bootstrap_servers(self) -> str:
        """Return the address of the plaintext listener."""
        return self.addresses["PLAINTEXT"]


def _settings(authority: trustme.CA) -> dict[str, str]:
    certificate = authority.issue_cert(AT, "localhost")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.server.max.receive.size": str(MAX_RECEIVE_BYTES),
        "listener.name.short.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.cert_chain_pems[0].bytes().decode(),
        # Java reads keys in this form only.
        "ssl.keystore.key": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "listener.name.tls.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    for listener in ("sasl", "secure", "short"):
        for mechanism in MECHANISMS:
            options = {
                "PLAIN": " ".join(f'user_{name}="{password}"' for name, password in USERS.items()),
                "OAUTHBEARER": 'unsecuredLoginStringClaim_sub="broker"',
            }.get(mechanism, "")
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism, options)
    return settings


@contextmanager
def secured(name: str, folder: Path) -> Iterator[Secured]:
    """Run a broker of this kind; raises `Unavailable` if Apache Kafka cannot run."""
    authority = trustme.CA()
    with listening(name, PROTOCOLS, _settings(authority), folder) as addresses:
        yield Secured(name, addresses, authority)
