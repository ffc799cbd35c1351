"""JKS and PKCS12 stores of a broker that starts, and changes without a type while it runs.

`tests/conformance/test_java_key_stores.py` compares the changes while a broker runs with Apache Kafka's.
"""

import logging
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from broker_core import EmbeddedBroker
from broker_core.config import known_settings
from tests.support.recorded_stores import STORE_PASSWORD
from tests.support.tls_brokers import issue


def store_of(authority: trustme.CA, path: Path, *names: str) -> str:
    """Make a PKCS12 store of a broker."""
    pem = issue(authority, *names)
    key = serialization.load_pem_private_key(pem.key.encode(), None)
    locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    chain = x509.load_pem_x509_certificate(pem.chain.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, chain, None, locked))  # type: ignore[arg-type]
    return str(path)


def test_server_properties_with_stores_are_read_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    authority = trustme.CA()
    file = f"""
        listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0
        ssl.keystore.location={store_of(authority, tmp_path / "broker.keystore.jks")}
        ssl.keystore.password={STORE_PASSWORD}
        ssl.key.password={STORE_PASSWORD}
        ssl.truststore.location={store_of(authority, tmp_path / "broker.truststore.jks")}
        ssl.truststore.password={STORE_PASSWORD}
        ssl.enabled.protocols=TLSv1.2,TLSv1.3
        ssl.client.auth=none
    """
    with caplog.at_level(logging.DEBUG), EmbeddedBroker(config=known_settings(file)) as broker:
        ca = authority.cert_pem.bytes().decode()
        secured = {"bootstrap.servers": broker.bootstrap("SSL"), "security.protocol": "SSL", "ssl.ca.pem": ca}
        admin = AdminClient(secured)
        assert admin.list_topics(timeout=30).brokers
        resource = ConfigResource(ResourceType.BROKER, "1")
        found = admin.describe_configs([resource])[resource].result(30)
        assert found["ssl.keystore.password"].value is None
        assert found["ssl.keystore.type"].value == "JKS"
        assert STORE_PASSWORD not in repr(broker) + str(found)
    assert STORE_PASSWORD not in caplog.text


def change(broker: EmbeddedBroker, **settings: str) -> str:
    """Change settings of the listener TLS; return the broker's complaint."""
    entries = [
        ConfigEntry(
            f"listener.name.tls.ssl.{name.replace('_', '.')}", text, incremental_operation=AlterConfigOpType.SET
        )
        for name, text in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    try:
        admin.incremental_alter_configs([resource])[resource].result(30)
    except Exception as error:
        return str(error)
    return ""


def test_without_a_type_the_content_decides_while_the_broker_runs(tmp_path: Path):
    authority = trustme.CA()
    first, second = issue(authority), tmp_path / "second.pem"
    other = issue(authority)
    second.write_text(other.key + other.chain, encoding="utf-8")
    own = {
        "listener.name.tls.ssl.keystore.key": first.key,
        "listener.name.tls.ssl.keystore.certificate.chain": first.chain,
    }
    file = {"listener.name.tls.ssl.keystore.location": str(second)}
    listeners = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}
    with EmbeddedBroker(listeners=listeners, config=own) as broker:
        assert change(broker, keystore_key=other.key, keystore_certificate_chain=other.chain) == ""
    with EmbeddedBroker(listeners=listeners, config=file) as broker:
        store = store_of(authority, tmp_path / "third.p12")
        assert "key store password is not specified" in change(broker, keystore_location=store)
        assert change(broker, keystore_location=store, keystore_password=STORE_PASSWORD) == ""


def test_a_store_that_cannot_be_used_does_not_replace_another(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    authority = trustme.CA()
    path = tmp_path / "broker.p12"
    given = {
        "listener.name.tls.ssl.keystore.location": store_of(authority, path),
        "listener.name.tls.ssl.keystore.password": STORE_PASSWORD,
    }
    with EmbeddedBroker(listeners={"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}, config=given) as broker:
        opened = pkcs12.load_pkcs12(path.read_bytes(), STORE_PASSWORD.encode())
        assert opened.cert is not None
        locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        other = tmp_path / "certificate.p12"
        certificates = [opened.cert.certificate]
        other.write_bytes(pkcs12.serialize_key_and_certificates(b"x", None, None, certificates, locked))
        assert "contains no private key" in change(broker, keystore_location=str(other))
        assert change(broker, keystore_location="/nowhere") != ""
        assert "ssl.keystore.location=/nowhere: No such file" in caplog.text
        assert change(broker, keystore_password="wrong") != ""
        assert f"ssl.keystore.location={path}: it cannot be read as PKCS12" in caplog.text
        assert change(broker, key_password="wrong") != ""
        assert f"ssl.keystore.location={path}: the password does not decrypt the private key" in caplog.text
        other.write_bytes(b"\xce\xce\xce\xce")
        assert "keytool -importkeystore -srckeystore " in change(broker, keystore_location=str(other))
    assert STORE_PASSWORD not in caplog.text
