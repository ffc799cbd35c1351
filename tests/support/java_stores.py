"""Key stores and trust stores of Java, made by the JDK's keytool, and brokers of either kind that read them."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from tests.support.java import SHORT_LIFE
from tests.support.listener_brokers import AT, listening
from tests.support.tls_brokers import issue

STORE_PASSWORD, KEY_PASSWORD = "open-the-store", "open-its-key"
KINDS = ("JKS", "PKCS12")
# The names of the keys in a store with several, none of which comes first in every order.
ALIASES = ("zeta", "broker-1", "alpha")
_LISTENERS = ("JKS", "P12", "PEM", "MANYJKS", "MANYP12")


def keytool(*words: str) -> None:
    """Run keytool; skip the test where there is none."""
    path = shutil.which("keytool")
    if path is None:
        pytest.skip("needs keytool of a JDK on the PATH")
    lean = [f"-J{option}" for option in SHORT_LIFE]
    ran = subprocess.run([path, *lean, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def put_key(store: Path, kind: str, alias: str, certificate: trustme.LeafCert, key_password: str | None = None) -> None:
    """Add a key with its certificate to a store, which is made if it does not exist."""
    key: Any = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    chain = [load_pem_x509_certificate(each.bytes()) for each in certificate.cert_chain_pems]
    locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    source = store.with_suffix(".source")
    source.write_bytes(pkcs12.serialize_key_and_certificates(alias.encode(), key, chain[0], chain[1:], locked))
    words = ["-importkeystore", "-noprompt", "-srckeystore", str(source), "-srcstoretype", "PKCS12"]
    words += ["-srcstorepass", STORE_PASSWORD, "-srcalias", alias, "-destkeystore", str(store)]
    words += ["-deststoretype", kind, "-deststorepass", STORE_PASSWORD]
    # A PKCS12 store has one password for all.
    words += ["-destkeypass", key_password or STORE_PASSWORD] if kind == "JKS" else []
    keytool(*words)


def put_trusted(store: Path, kind: str, alias: str, certificate: bytes) -> None:
    """Add a trusted certificate in PEM to a store, which is made if it does not exist."""
    source = store.with_suffix(".pem")
    source.write_bytes(certificate)
    words = ["-importcert", "-noprompt", "-alias", alias, "-file", str(source), "-keystore", str(store)]
    keytool(*words, "-storetype", kind, "-storepass", STORE_PASSWORD)


@dataclass
class JavaStores:
    """The stores in a folder: an authority's, and certificates of a broker that differ in their keys only."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)
    certificates: dict[str, trustme.LeafCert] = field(default_factory=dict)

    def issued(self, name: str) -> trustme.LeafCert:
        """Return a certificate of a broker, the same one for each name."""
        if name not in self.certificates:
            self.certificates[name] = self.authority.issue_cert(AT, "localhost", organization_unit_name="Brokers")
        return self.certificates[name]

    def keys(self, name: str, kind: str, *aliases: str, key_password: str | None = None) -> str:
        """Return the path of a key store with a certificate of a broker for each alias."""
        path = self.folder / name
        if not path.exists():
            for alias in aliases:
                issued = self.issued(name if len(aliases) == 1 else f"{name}.{alias}")
                put_key(path, kind, alias, issued, key_password)
        return str(path)

    def pem(self) -> str:
        """Return the path of a key and its certificate in PEM."""
        path = self.folder / "store.pem"
        if not path.exists():
            pem = issue(self.authority, unit="Brokers")
            path.write_text(pem.key + pem.chain, encoding="utf-8")
        return str(path)

    def trust(self, kind: str) -> str:
        """Return the path of a trust store with the authority."""
        path = self.folder / f"trust-{kind}"
        if not path.exists():
            put_trusted(path, kind, "authority", self.authority.cert_pem.bytes())
        return str(path)


@dataclass(frozen=True)
class JavaStoreBroker:
    """The addresses of a broker by listener, and its stores."""

    name: str
    addresses: dict[str, str]
    stores: JavaStores


def _settings(stores: JavaStores) -> dict[str, str]:
    return {
        # The listener JKS has no types, as most files of settings.
        **_of("JKS", stores.keys("jks", "JKS", "server", key_password=KEY_PASSWORD), stores.trust("JKS")),
        "listener.name.jks.ssl.key.password": KEY_PASSWORD,
        **_of("P12", stores.keys("p12", "PKCS12", "server"), stores.trust("PKCS12")),
        "listener.name.p12.ssl.keystore.type": "PKCS12",
        "listener.name.p12.ssl.truststore.type": "PKCS12",
        "listener.name.pem.ssl.keystore.type": "PEM",
        "listener.name.pem.ssl.keystore.location": stores.pem(),
        **_of("MANYJKS", stores.keys("manyjks", "JKS", *ALIASES), stores.trust("PKCS12")),
        **_of("MANYP12", stores.keys("manyp12", "PKCS12", *ALIASES), stores.trust("JKS")),
    }


def _of(listener: str, keys: str, trust: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}.ssl."
    return {
        f"{prefix}keystore.location": keys,
        f"{prefix}keystore.password": STORE_PASSWORD,
        f"{prefix}truststore.location": trust,
        f"{prefix}truststore.password": STORE_PASSWORD,
        f"{prefix}client.auth": "required",
    }


@contextmanager
def java_store_broker(name: str, folder: Path, stores: JavaStores) -> Iterator[JavaStoreBroker]:
    """Run a broker of this kind; raises `Unavailable` if Apache Kafka cannot run, and skips without keytool."""
    protocols = {"PLAINTEXT": "PLAINTEXT", **dict.fromkeys(_LISTENERS, "SSL")}
    with listening(name, protocols, _settings(stores), folder) as addresses:
        yield JavaStoreBroker(name, addresses, stores)
