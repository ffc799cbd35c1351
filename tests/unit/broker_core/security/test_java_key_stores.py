"""JKS and PKCS12 stores in settings, and the messages about stores that a broker cannot use."""

import re
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.server.listeners import plan_listeners
from broker_core.server.tls import tls_context
from tests.support.recorded_stores import JKS, KEY_PASSWORD, PKCS12, STORE_PASSWORD
from tests.support.tls_brokers import issue

STORES = {"JKS": (JKS, KEY_PASSWORD), "PKCS12": (PKCS12, STORE_PASSWORD)}
KEYTOOL = "keytool -importkeystore -srckeystore "


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the paths of stores of each format."""
    pem = issue(trustme.CA())
    content = {"JKS": JKS, "PKCS12": PKCS12, "JCEKS": b"\xce\xce\xce\xce" + JKS[4:]}
    content |= {"PEM": (pem.key + pem.chain).encode(), "cut": JKS[:700], "nothing": b""}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    return {name: str(tmp_path / name) for name in content}


def settings(files: dict[str, str], kind: str, **more: str) -> dict[str, str]:
    """Return the settings of both stores of one format."""
    _, key_password = STORES[kind]
    return {
        "ssl.keystore.location": files[kind],
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": key_password,
        "ssl.truststore.location": files[kind],
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.client.auth": "required",
    } | {name.replace("_", "."): text for name, text in more.items()}


def context_of(given: dict[str, str]) -> ssl.SSLContext:
    config = BrokerConfig().override({"listeners": "SSL://h:1", **given})
    context, _ = tls_context(plan_listeners(config, brokers=1, host="h", port=0)[0])
    return context


def refused(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        context_of(given)
    text = str(caught.value)
    assert STORE_PASSWORD not in text
    assert KEY_PASSWORD not in text
    return text


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("store_type", ["", "JKS", "PKCS12", "jks"])
def test_the_content_decides_the_format(files: dict[str, str], kind: str, store_type: str):
    given = settings(files, kind, ssl_keystore_type=store_type, ssl_truststore_type=store_type)
    # The certificates of the authority and of the keys, as in Java.
    assert context_of(given).cert_store_stats()["x509"] == {"JKS": 2, "PKCS12": 3}[kind]


def test_the_store_password_is_that_of_the_key_without_another(files: dict[str, str]):
    assert context_of(settings(files, "PKCS12", ssl_key_password=""))
    assert "set ssl.key.password" in refused(settings(files, "JKS", ssl_key_password=""))


@pytest.mark.parametrize(
    ("kind", "more", "complaint"),
    [
        ("JKS", {"ssl_keystore_password": ""}, "ssl.keystore.password is not set"),
        ("PKCS12", {"ssl_keystore_password": ""}, "ssl.keystore.password is not set"),
        ("JKS", {"ssl_keystore_password": "wrong"}, "as JKS: the password is wrong, or the file is damaged; set ssl.k"),
        ("PKCS12", {"ssl_keystore_password": "wrong"}, "cannot be read as PKCS12: Invalid password"),
        ("JKS", {"ssl_key_password": "wrong"}, "does not decrypt the private key 'zeta'"),
        ("PKCS12", {"ssl_key_password": "wrong"}, "does not decrypt the private key 'zeta'"),
        ("JKS", {"ssl_truststore_password": "wrong"}, "trusted certificates of listener SSL ("),
        ("PKCS12", {"ssl_truststore_password": ""}, "as PKCS12 without a password: set ssl.truststore.password"),
        (
            "JKS",
            {"ssl_keystore_type": "PEM", "ssl_keystore_password": ""},
            "it is a JKS store: set ssl.keystore.type=J",
        ),
        ("JKS", {"ssl_keystore_type": "PEM"}, "is PEM, and it is a JKS store: set ssl.keystore.type=JKS"),
        ("PKCS12", {"ssl_truststore_type": "PEM"}, "is PEM, and it is a PKCS12 store: set ssl.truststore.type=PKCS12"),
        ("JKS", {"ssl_keystore_type": "BCFKS"}, "ssl.keystore.type is BCFKS: use JKS, PKCS12 or PEM"),
        ("JKS", {"ssl_truststore_type": "JCEKS"}, f"ssl.truststore.type is JCEKS, which is not read here.* {KEYTOOL}"),
        ("JKS", {"ssl_keystore_location": "JCEKS"}, f"it is a JCEKS store, which is not read here.* {KEYTOOL}"),
        ("JKS", {"ssl_keystore_location": "PEM", "ssl_keystore_type": "JKS"}, "set ssl.keystore.type=PEM if it is"),
        ("JKS", {"ssl_keystore_location": "PEM"}, "remove the password for PEM, and set ssl.key.password"),
        ("JKS", {"ssl_truststore_location": "PEM"}, "and this is neither JKS nor PKCS12.* remove the password"),
        ("JKS", {"ssl_keystore_location": "cut"}, "the file is damaged"),
        ("JKS", {"ssl_keystore_location": "nothing"}, "ssl.keystore.password is set, and this is neither JKS nor PKCS"),
        ("JKS", {"ssl_truststore_location": "nothing"}, "and this is neither JKS nor PKCS12: name another file"),
        ("JKS", {"ssl_keystore_location": "/nowhere"}, "(ssl.keystore.location=/nowhere) .*: No such file"),
        ("JKS", {"ssl_truststore_location": "/nowhere"}, "(ssl.truststore.location=/nowhere) .*: No such file"),
        ("JKS", {"ssl_keystore_location": "/nowhere", "ssl_keystore_type": "JKS"}, "No such file"),
        ("JKS", {"ssl_keystore_location": "/nowhere", "ssl_keystore_type": "PEM"}, "No such file"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(files: dict[str, str], kind: str, more: dict[str, str], complaint: str):
    given = settings(
        files, kind, **{name: files.get(text, text) if "location" in name else text for name, text in more.items()}
    )
    text = refused(given)
    assert re.search(re.sub(r"([()])", r"\\\1", complaint), text)
    store = "ssl.truststore.location" if "trusted certificates" in text else "ssl.keystore.location"
    assert f" ({store}={given[store]}) cannot be loaded: " in text


def test_jks_trust_store_needs_no_password(files: dict[str, str]):
    assert context_of(settings(files, "JKS", ssl_truststore_password=""))


def test_pkcs12_alone_needs_an_extra(files: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    assert context_of(settings(files, "JKS"))
    assert "run pip install cryptography" in refused(settings(files, "PKCS12"))


def test_a_store_without_a_key_is_refused(tmp_path: Path):
    certificate = x509.load_pem_x509_certificate(trustme.CA().cert_pem.bytes())
    locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    store = tmp_path / "trust.p12"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, [certificate], locked))
    given = {"ssl.keystore.location": str(store), "ssl.keystore.password": STORE_PASSWORD}
    assert "contains no private key with a certificate" in refused(given)
