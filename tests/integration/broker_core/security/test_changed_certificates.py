"""Certificates that change while a broker runs, after a restart and with several brokers; secrets stay out of sight."""

import logging
import socket
import ssl

import pytest
import trustme
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from broker_core import EmbeddedBroker
from tests.support.tls_brokers import KeyStore, issue
from tests.support.tls_client import trusting

PREFIX = "listener.name.tls.ssl.keystore."
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}
DEADLINE_S = 30


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def stores(store: KeyStore) -> dict[str, str]:
    return {f"{PREFIX}key": store.key, f"{PREFIX}certificate.chain": store.chain}


def change(broker: EmbeddedBroker, settings: dict[str, str], broker_id: int = 1) -> None:
    """Change settings of one broker."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def served(broker: EmbeddedBroker, authority: trustme.CA, number: int = 0) -> bytes:
    """Return the certificate that a broker sends to the next client."""
    host, port = broker.bootstrap("TLS").split(",")[number].split(":")
    with (
        socket.create_connection((host, int(port)), timeout=DEADLINE_S) as plain,
        trusting(authority).wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def in_bytes(store: KeyStore) -> bytes:
    return ssl.PEM_cert_to_DER_cert(store.chain)


def test_a_changed_certificate_is_used_after_a_restart(authority, tmp_path):
    first, second = issue(authority), issue(authority)
    with EmbeddedBroker(listeners=LISTENERS, data_dir=tmp_path, config=stores(first)) as broker:
        assert served(broker, authority) == in_bytes(first)
        change(broker, stores(second))
        assert served(broker, authority) == in_bytes(second)
    with EmbeddedBroker(listeners=LISTENERS, data_dir=tmp_path, config=stores(first)) as broker:
        assert served(broker, authority) == in_bytes(second)


def test_a_file_that_is_gone_at_a_restart_leaves_the_first_certificate(authority, tmp_path, caplog):
    store, file = issue(authority), tmp_path / "store.pem"
    file.write_text(store.key + store.chain, encoding="utf-8")
    data, location = tmp_path / "data", f"{PREFIX}location"
    with EmbeddedBroker(listeners=LISTENERS, data_dir=data, config={location: str(file)}) as broker:
        other = tmp_path / "other.pem"
        other.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
        change(broker, {location: str(other)})
    other.unlink()
    with (
        caplog.at_level(logging.ERROR),
        EmbeddedBroker(listeners=LISTENERS, data_dir=data, config={location: str(file)}) as broker,
    ):
        assert served(broker, authority) == in_bytes(store)
    assert f"Failed to load PEM SSL keystore {other}" in caplog.text


def test_each_broker_has_its_own_certificate(authority):
    first, second = issue(authority), issue(authority)
    with EmbeddedBroker(brokers=2, listeners=LISTENERS, config=stores(first)) as broker:
        change(broker, stores(second), broker_id=2)
        assert [served(broker, authority, number) for number in (0, 1)] == [in_bytes(first), in_bytes(second)]


def test_passwords_are_neither_logged_nor_described(authority, caplog):
    store = issue(authority)
    secret = "a password of a test"
    with caplog.at_level(logging.DEBUG), EmbeddedBroker(listeners=LISTENERS, config=stores(store)) as broker:
        change(broker, {"sasl.jaas.config": secret, "listener.name.nosuch.ssl.keystore.password": secret})
        resource = ConfigResource(ResourceType.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
        found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert found["sasl.jaas.config"].value is None
        assert found["listener.name.nosuch.ssl.keystore.password"].is_sensitive
        assert secret not in repr(broker)
        assert secret not in str(found)
    assert secret not in caplog.text
    assert store.key.splitlines()[1] not in caplog.text
