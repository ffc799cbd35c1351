"""Real clients with every SASL mechanism, in plaintext and over TLS, through re-authentication."""

import base64
import json
import ssl
import time

import pytest
import trustme
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from broker_core import EmbeddedBroker
from broker_core.security.sasl_oauthbearer import InvalidToken, ValidToken
from tests.support.waiting import wait_until

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = {"CLEAR": "SASL_PLAINTEXT", "SECURE": "SASL_SSL"}
REAUTH_MS = 1200


def unsigned_token():
    def section(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{section({'alg': 'none'})}.{section({'sub': 'alice', 'exp': time.time() + 600})}."


class Tokens(AbstractTokenProvider):
    def token(self):
        return unsigned_token()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def kafka(authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    config = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    with EmbeddedBroker(listeners=PROTOCOLS, users={"alice": "secret"}, tls=context, config=config) as broker:
        yield broker


def settings(kafka, listener, mechanism, authority, **more):
    given = {
        "bootstrap.servers": kafka.bootstrap(listener),
        "security.protocol": PROTOCOLS[listener],
        "sasl.mechanism": mechanism,
        "ssl.ca.pem": authority.cert_pem.bytes().decode(),
    }
    if mechanism == "OAUTHBEARER":
        return given | {"oauth_cb": lambda _: (unsigned_token(), time.time() + 600)} | more
    return given | {"sasl.username": "alice", "sasl.password": "secret"} | more


def principals(kafka):
    return {str(client._connection.principal) for client in kafka._server.clients.connected}


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_authenticates(kafka, authority, listener, mechanism):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    who = (
        {"sasl_oauth_token_provider": Tokens()}
        if mechanism == "OAUTHBEARER"
        else {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    )
    admin = KafkaAdminClient(
        bootstrap_servers=kafka.bootstrap(listener),
        security_protocol=PROTOCOLS[listener],
        sasl_mechanism=mechanism,
        ssl_context=context,
        **who,
    )
    try:
        assert [broker["port"] for broker in admin.describe_cluster()["brokers"]] == [
            int(kafka.bootstrap(listener).rpartition(":")[2])
        ]
    finally:
        admin.close()


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("unknown", "secret")])
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_librdkafka_reports_failed_authentication(kafka, authority, mechanism, name, password):
    errors = []
    admin = AdminClient(
        settings(
            kafka,
            "CLEAR",
            mechanism,
            authority,
            **{"sasl.username": name, "sasl.password": password, "log_level": 0, "error_cb": errors.append},
        )
    )
    wait_until(
        lambda: admin.poll(0.05) or any(error.code() == KafkaError._AUTHENTICATION for error in errors),
        "the client gets the error",
    )


def test_custom_token_validator_is_used():
    def validator(token, now_ms):
        if token != "magic":
            raise InvalidToken("no magic", scope="magic", status="insufficient_scope")
        return ValidToken("merlin", now_ms + 60_000)

    errors = []
    with EmbeddedBroker(listeners={"S": "SASL_PLAINTEXT"}, token_validator=validator) as kafka:

        def client(token):
            return AdminClient(
                {
                    "bootstrap.servers": kafka.bootstrap("S"),
                    "security.protocol": "SASL_PLAINTEXT",
                    "log_level": 0,
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (token, time.time() + 600),
                    "error_cb": errors.append,
                }
            )

        merlin = client("magic")
        merlin.poll(0)
        assert merlin.list_topics(timeout=30).brokers
        assert principals(kafka) == {"User:merlin"}
        mordred = client("other")
        wait_until(
            lambda: mordred.poll(0.05) or any("insufficient_scope" in str(error) for error in errors),
            "the client gets the reason",
        )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_reauthenticates(mechanism):
    config = {"connections.max.reauth.ms": str(REAUTH_MS)}
    listeners, users = {"S": "SASL_PLAINTEXT"}, {"alice": "secret"}
    with EmbeddedBroker(listeners=listeners, users=users, config=config) as kafka:
        admin = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap("S"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "alice",
                "sasl.password": "secret",
            }
        )
        assert admin.list_topics(timeout=30).brokers
        first = {}

        def has_come_in_again():
            assert admin.list_topics(timeout=30).brokers
            # A client that is late on a busy machine is disconnected, connects again, and gets another chance.
            now = {client: client._connection.sasl.expires_ms for client in list(kafka._server.clients.connected)}
            return any(
                expires_ms is not None and first.setdefault(client, expires_ms) < expires_ms
                for client, expires_ms in now.items()
            )

        wait_until(has_come_in_again, "a session begins again on the same connection")
