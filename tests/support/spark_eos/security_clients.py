"""Clients of a secured broker for each mechanism, with the options that users write."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificates

from spark_eos.client.oauth_tokens import token_provider
from spark_eos.options.client import ClientOptions
from spark_eos.options.oauth import OAuthOptions
from spark_eos.runtime import REAL
from tests.support.secured import USERS, Secured, jaas

USER = "alice"
PASSWORD = USERS[USER]
KEY_PASSWORD = "open-the-key"


def mutual_tls_settings(authority: trustme.CA) -> dict[str, str]:
    """Return the settings of a broker whose clients need a certificate of this authority."""
    own = authority.issue_cert("127.0.0.1")
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.keystore.certificate.chain": "".join(each.bytes().decode() for each in own.cert_chain_pems),
        "ssl.keystore.key": own.private_key_pem.bytes().decode(),
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }


def token(subject: str = USER) -> str:
    """Return a token that Kafka's test brokers accept."""
    maker = token_provider(ClientOptions(("h:1",), sasl_oauth=OAuthOptions(unsigned_subject=subject)), REAL)
    assert maker is not None
    return str(maker.token())


class Credentials:
    """A client's secrets in a folder, and the options that use them."""

    def __init__(self, kafka: Secured, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        leaf = kafka.authority.issue_cert(f"{USER}.example", common_name=USER)
        loaded = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        locked = loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
        )
        self.key, self.locked_key = leaf.private_key_pem.bytes().decode(), locked.decode()
        self.certificate = "".join(each.bytes().decode() for each in leaf.cert_chain_pems)
        self.token = token()
        self.authority = self._file("ca.pem", kafka.authority.cert_pem.bytes().decode())
        self.both_path = self._file("client.pem", self.certificate + self.locked_key)
        self.store_path = str(folder / "client.jks")
        Path(self.store_path).write_bytes(self._store(loaded))
        self.token_path = self._file("token", self.token + "\n")

    def _file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def _store(self, key: Any) -> bytes:
        """Make a PKCS12 store of the client, as keytool does also under the name .jks."""
        chain = load_pem_x509_certificates(self.certificate.encode())
        locked = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"client", key, chain[0], chain[1:], locked)

    def options(self, listener: str, protocol: str, more: Mapping[str, str]) -> dict[str, str]:
        """Return the options for one listener; `more` is without the prefix."""
        settings = {
            "bootstrap.servers": self.kafka.addresses[listener],
            "security.protocol": protocol,
            "default.api.timeout.ms": "20000",
            **more,
        }
        if protocol.endswith("SSL"):
            settings = {"ssl.truststore.location": self.authority} | settings
        return {f"kafka.{name}": value for name, value in settings.items()}

    def by_password(self, mechanism: str, password: str = PASSWORD, *, protocol: str = "SASL_SSL") -> dict[str, str]:
        """Authenticate with a user's name and password."""
        words = f'username="{USER}" password="{password}"'
        return self.options(
            "SECURE" if protocol == "SASL_SSL" else "SASL",
            protocol,
            {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, words)},
        )

    def by_token_file(self, url: str | None = None) -> dict[str, str]:
        """Authenticate with the token in a file, by the Java client's settings."""
        return self.options(
            "SECURE",
            "SASL_SSL",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
                "sasl.oauthbearer.token.endpoint.url": url or Path(self.token_path).as_uri(),
                "sasl.jaas.config": jaas("OAUTHBEARER", ""),
            },
        )

    def by_unsigned_token(self) -> dict[str, str]:
        """Authenticate as Java clients do with a test broker."""
        return self.options(
            "SASL",
            "SASL_PLAINTEXT",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": jaas("OAUTHBEARER", f'unsecuredLoginStringClaim_sub="{USER}"'),
            },
        )

    def by_certificate_file(self) -> dict[str, str]:
        """Authenticate with a certificate and an encrypted key in one file."""
        return self.options(
            "TLS",
            "SSL",
            {"ssl.keystore.location": self.both_path, "ssl.keystore.type": "PEM", "ssl.key.password": KEY_PASSWORD},
        )

    def by_key_store(self, password: str = KEY_PASSWORD) -> dict[str, str]:
        """Authenticate with a certificate and a key in a Java key store."""
        return self.options(
            "TLS",
            "SSL",
            {"ssl.keystore.location": self.store_path, "ssl.keystore.type": "JKS", "ssl.keystore.password": password},
        )

    def by_certificate_text(self) -> dict[str, str]:
        """Authenticate with a certificate and a key in the options themselves."""
        return self.options(
            "TLS",
            "SSL",
            {
                "ssl.truststore.certificates": self.kafka.authority.cert_pem.bytes().decode(),
                "ssl.keystore.certificate.chain": self.certificate,
                "ssl.keystore.key": self.key,
            },
        )


WAYS: Mapping[str, Callable[[Credentials], dict[str, str]]] = {
    **{
        f"{mechanism} over {protocol}": lambda own, mechanism=mechanism, protocol=protocol: own.by_password(
            mechanism, protocol=protocol
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
    },
    "token file": Credentials.by_token_file,
    "unsigned token": Credentials.by_unsigned_token,
    "certificate file": Credentials.by_certificate_file,
    "certificate text": Credentials.by_certificate_text,
    "key store": Credentials.by_key_store,
}


def untrusted_ca() -> trustme.CA:
    """Create an authority that the broker does not trust."""
    return trustme.CA()
