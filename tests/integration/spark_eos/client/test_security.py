"""Commits and reads on either broker by each mechanism, with the options of Spark's `kafka` format."""

from pathlib import Path
from typing import Any

import pytest

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthenticationError, EosKafkaError, OptionError, UnreachableError
from spark_eos.options.client import client_options
from spark_eos.source.schema import source_schema
from spark_eos.source.spark_readers import StreamReader
from tests.support.spark_eos.secured_brokers import AWKWARD, AWKWARD_USER, SCRAM, kafka, own
from tests.support.spark_eos.security_clients import PASSWORD, USER, WAYS, Credentials, jaas, untrusted_ca
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

__all__ = ["kafka", "own"]


def read(given: dict[str, str], topic: str) -> list[bytes]:
    reader = StreamReader({**given, "subscribe": topic, "startingOffsets": "earliest"}, source_schema(False))
    start = reader.initialOffset()
    pieces = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    reader.stop()
    return [value for piece in pieces for rows in reader.read(piece) for value in rows.column("value").to_pylist()]


@pytest.mark.parametrize("way", WAYS)
def test_micro_batch_is_committed_and_read(own: Credentials, way: str) -> None:
    given = WAYS[way](own)
    with KafkaClient(client_options(given)) as client:
        world = World(own.kafka.bootstrap_servers, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
        assert world.visible() == ["row of 0"]
    assert read(given, world.topic) == [b"row of 0"]


@pytest.mark.parametrize("mechanism", SCRAM)
def test_password_may_contain_jaas_special_characters(own: Credentials, mechanism: str) -> None:
    quoted = AWKWARD.replace("\\", "\\\\").replace('"', '\\"')
    words = jaas(mechanism, f'username="{AWKWARD_USER}" password="{quoted}"')
    ways = [{"sasl.jaas.config": words}, {"sasl.username": AWKWARD_USER, "sasl.password": AWKWARD}]
    for way in ways:
        given = own.options("SASL", "SASL_PLAINTEXT", {"sasl.mechanism": mechanism, **way})
        with KafkaClient(client_options(given)) as client:
            client.connect()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_wrong_password_is_reported_immediately(own: Credentials, mechanism: str) -> None:
    refuses_credentials(own.by_password(mechanism, "wrong"))


def test_rejected_token_is_reported(own: Credentials) -> None:
    Path(own.token_path).write_text("not.a.token")
    refuses_credentials(own.by_token_file())


def test_token_file_without_a_token_is_reported(own: Credentials) -> None:
    Path(own.token_path).write_text("")
    refuses(own.by_token_file(), AuthenticationError, "contains more than a token.*Keep a valid token in this file")
    refuses(own.by_token_file("file:///nowhere/token"), AuthenticationError, "/nowhere/token cannot be read: No such")


def test_token_is_read_again_for_each_connection(own: Credentials) -> None:
    given = own.by_token_file()
    fresh, expired = own.token, own.token.replace(".", "x.", 1)
    Path(own.token_path).write_text(expired)
    refuses_credentials(given)
    Path(own.token_path).write_text(fresh)
    with KafkaClient(client_options(given)) as client:
        client.connect()


def test_untrusted_certificate_is_reported(own: Credentials, tmp_path: Path) -> None:
    other = tmp_path / "stranger.pem"
    other.write_bytes(untrusted_ca().cert_pem.bytes())
    trusting = {"kafka.ssl.truststore.location": str(other)}
    refuses(own.by_password("PLAIN") | trusting, AuthenticationError, "certificate is not trusted")


def test_client_without_a_certificate_is_refused(own: Credentials) -> None:
    # Apache Kafka sends the TLS alert for this error; the embedded broker closes the connection.
    refuses(
        own.options("TLS", "SSL", {"default.api.timeout.ms": "3000"}),
        EosKafkaError,
        "rejected the client's certificate, or requires one|closes connections at once .* client without a certificate",
    )


def test_undecryptable_key_is_reported(own: Credentials) -> None:
    wrong = {"kafka.ssl.key.password": "wrong"}
    refuses(
        own.by_certificate_file() | wrong,
        OptionError,
        "Cannot read the client certificate or its key.*kafka.ssl.key.password",
    )


def refuses_credentials(given: dict[str, str]) -> None:
    """Return whether the error names the credentials or a closed connection.

    kafka-python drops a response that arrives together with the end of its connection. Apache Kafka over TLS sends both
    together so often that about twenty attempts in a row have met it.
    """
    with KafkaClient(client_options(given)) as client:
        with pytest.raises((AuthenticationError, UnreachableError)) as refused:
            client.connect()
    if isinstance(refused.value, UnreachableError):
        assert "socket disconnected" in str(refused.value)
    else:
        assert "rejected the credentials" in str(refused.value)


def refuses(given: dict[str, str], error: type[Exception], text: str) -> None:
    with KafkaClient(client_options(given)) as client, pytest.raises(error, match=text):
        client.connect()


def test_session_is_reauthenticated_while_the_client_works(own: Credentials) -> None:
    given = own.options(
        "SHORT",
        "SASL_PLAINTEXT",
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("PLAIN", f'username="{USER}" password="{PASSWORD}"')},
    )
    with KafkaClient(client_options(given)) as client:
        transport: Any = client.transport
        since: dict[Any, float] = {}

        def is_renewed() -> bool:
            """A broker closes the connection of a session that has ended, and the client opens another."""
            client.metadata([])
            transport.pause(0.05)
            sessions = [each._reauth for each in transport._manager._conns.values() if each.connected]
            return any(each.authenticated_at > since.setdefault(each, each.authenticated_at) for each in sessions)

        wait_until(is_renewed, "a second authentication on one connection")
