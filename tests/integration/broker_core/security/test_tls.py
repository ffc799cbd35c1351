"""Clients of a listener with TLS: their principals, and what is refused."""

import logging
import socket
import ssl

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import MetadataRequest

from broker_core import EmbeddedBroker
from tests.support.raw_client import RawClient
from tests.support.tls_client import TlsClient, trusting


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def identity(authority):
    """Return the settings of a listener that clients of the authority trust, and that trusts them."""
    certificate = authority.issue_cert("127.0.0.1")
    return {
        "ssl.keystore.certificate.chain": "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems),
        "ssl.keystore.key": certificate.private_key_pem.bytes().decode(),
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }


def principals(kafka):
    return [str(client._connection.principal) for client in kafka._server.clients.connected]


@pytest.mark.parametrize(
    ("rules", "name"), [("DEFAULT", "User:CN=alice,OU=tests,O=Example"), ("RULE:^CN=(.*?),.*$/$1/U", "User:ALICE")]
)
def test_client_principal_comes_from_its_certificate(authority, identity, rules, name):
    certificate = authority.issue_cert(
        "c", common_name="alice", organization_name="Example", organization_unit_name="tests"
    )
    settings = {**identity, "ssl.client.auth": "required", "ssl.principal.mapping.rules": rules}
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config=settings) as kafka:
        with TlsClient(kafka.bootstrap_servers, trusting(authority, certificate)) as client:
            assert client.send(MetadataRequest(topics=[]), 9).brokers
            assert principals(kafka) == [name]


def test_name_that_matches_no_rule_is_refused(authority, identity):
    settings = {**identity, "ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/"}
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config=settings) as kafka:
        with TlsClient(kafka.bootstrap_servers, trusting(authority, authority.issue_cert("c"))) as client:
            assert client.is_closed_by_peer()


@pytest.mark.parametrize(("mode", "is_served"), [("none", True), ("requested", True), ("required", False)])
def test_missing_client_certificate_is_refused_or_anonymous(authority, identity, mode, is_served):
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config={**identity, "ssl.client.auth": mode}) as kafka:
        try:
            with TlsClient(kafka.bootstrap_servers, trusting(authority)) as client:
                assert client.send(MetadataRequest(topics=[]), 9).brokers
                assert principals(kafka) == ["User:ANONYMOUS"]
                assert is_served
        except (ssl.SSLError, ConnectionError):
            assert not is_served


@pytest.mark.parametrize("mode", ["requested", "required"])
def test_certificate_of_an_untrusted_issuer_is_refused(authority, identity, mode):
    stranger = trusting(authority, trustme.CA().issue_cert("c"))
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config={**identity, "ssl.client.auth": mode}) as kafka:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with TlsClient(kafka.bootstrap_servers, stranger) as client:
                client.send(MetadataRequest(topics=[]), 9)


def test_python_ssl_context_is_accepted(authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, tls=context) as kafka:
        admin = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap("SECURE"),
                "security.protocol": "SSL",
                "ssl.ca.pem": authority.cert_pem.bytes().decode(),
            }
        )
        assert admin.list_topics(timeout=30).brokers


def test_disabled_tls_version_is_refused(authority, identity):
    context = trusting(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    settings = {**identity, "ssl.enabled.protocols": "TLSv1.3"}
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config=settings) as kafka:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(kafka.bootstrap_servers, context)


def test_plaintext_client_on_a_tls_listener_affects_no_others(authority, identity, caplog):
    caplog.set_level(logging.INFO)
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config=identity) as kafka:
        with RawClient(kafka.bootstrap_servers) as vandal, RawClient(kafka.bootstrap_servers):
            vandal.send_bytes(b"\x00\x00\x00\x0a" + b"GET / HTTP" * 1000)
            with TlsClient(kafka.bootstrap_servers, trusting(authority)) as client:
                assert client.send(MetadataRequest(topics=[]), 9).brokers
            try:
                vandal._socket.settimeout(30)
                while vandal._socket.recv(1000):
                    pass
            except ConnectionError:
                pass
    assert "no connection from 127.0.0.1 at SECURE" in caplog.text


def test_broker_closes_despite_an_open_encrypted_connection(authority, identity):
    with EmbeddedBroker(listeners={"SECURE": "SSL"}, config=identity) as kafka:
        host, _, port = kafka.bootstrap_servers.partition(":")
        client = TlsClient(kafka.bootstrap_servers, trusting(authority))
        assert client.send(MetadataRequest(topics=[]), 9).brokers
    with client:
        assert client.is_closed_by_peer()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
