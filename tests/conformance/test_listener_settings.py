"""Settings of listeners, SASL and TLS that change while a broker runs (KIP-226)."""

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from broker_core.errors import ErrorCode
from broker_core.settings.catalog import OF_STORES, PER_BROKER
from tests.support import listener_values as table
from tests.support.raw_client import RawClient
from tests.support.setting_changes import (
    NOT_COMPATIBLE,
    NOT_LOADED,
    WRAPPED,
    Settings,
    alter,
    answer_to,
    delete_stored,
    described,
    store,
)
from tests.support.tls_brokers import SUITE, TlsBroker, issue, tls_broker
from tests.support.tls_client import TlsClient, trusting
from tests.support.waiting import wait_until

AT_CLUSTER_LEVEL = "Cannot update these configs at default cluster level, broker id must be specified: [{}]"
WITHOUT_PREFIX = "These security configs can be dynamically updated only per-listener using the listener prefix: [{}]"


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Return a running broker with TLS listeners."""
    with tls_broker(request.param, tmp_path_factory.mktemp(f"tls-{request.param}")) as running:
        yield running


@pytest.fixture
def client(broker: TlsBroker) -> Iterator[RawClient]:
    """Return a connection, for changes that are only validated."""
    with RawClient(broker.addresses["PLAINTEXT"]) as client:
        yield client


@pytest.fixture
def changing(client: RawClient) -> Iterator[RawClient]:
    """Return a connection; the settings that the test stores are deleted afterwards."""
    yield client
    delete_stored(client)


@pytest.mark.parametrize("key", sorted(PER_BROKER))
def test_values_of_one_broker(client: RawClient, key: str):
    expected = {value: answer_to(message) for value, message in table.values_of(key)}
    if key in OF_STORES:
        expected = dict.fromkeys(expected, answer_to(WITHOUT_PREFIX.format(key)))
    assert {value: alter(client, {key: value}) for value in expected} == expected


@pytest.mark.parametrize("key", sorted(PER_BROKER - OF_STORES))
def test_values_of_all_brokers(client: RawClient, key: str):
    expected = {
        value: answer_to(AT_CLUSTER_LEVEL.format(key) if message is None or table.depends(message) else message)
        for value, message in table.values_of(key)
    }
    assert {value: alter(client, {key: value}, "") for value in expected} == expected


@pytest.mark.parametrize("key", sorted(PER_BROKER - {"cordoned.log.dirs"}))
@pytest.mark.parametrize("listener", ["sasl", "nosuch"])
def test_values_of_one_listener(client: RawClient, key: str, listener: str):
    prefixed = f"listener.name.{listener}.{key}"
    messages = dict(table.values_of(key))
    expected = {
        value: answer_to(None if message is None or table.depends(message) else message)
        for value, message in messages.items()
    }
    assert {value: alter(client, {prefixed: value}) for value in expected} == expected
    refused = {
        value: answer_to(AT_CLUSTER_LEVEL.format(prefixed)) if code == 0 else (code, message)
        for value, (code, message) in expected.items()
    }
    assert {value: alter(client, {prefixed: value}, "") for value in refused} == refused


@pytest.mark.parametrize(("changes", "message"), table.TOGETHER)
def test_settings_that_conflict(client: RawClient, changes: Settings, message: str | None):
    wanted = answer_to(message and WRAPPED.format(message))
    assert alter(client, changes) == wanted


@pytest.mark.parametrize(("key", "accepted", "refused"), table.THREADS)
def test_a_number_of_threads_is_halved_or_doubled_at_most(
    client: RawClient, key: str, accepted: tuple[str, ...], refused: dict[str, str]
):
    base = key.removeprefix("listener.name.sasl.")
    update = f"Dynamic thread count update validation failed for {base}="
    for name in ("1", ""):
        assert [alter(client, {key: value}, name) for value in accepted] == [(0, None)] * len(accepted)
        for value, problem in refused.items():
            assert alter(client, {key: value}, name) == answer_to(WRAPPED.format(f"{update}{value}, value {problem}"))


def test_threads_of_the_cleaner_are_halved_or_doubled_at_most(changing: RawClient):
    key, expected = "log.cleaner.threads", {"1": None, "2": None, "3": "cannot be increased to more than double"}
    problems = {
        value: problem and WRAPPED.format(f"Log cleaner threads {problem} the current value 1")
        for value, problem in expected.items()
    } | {"0": "/ by zero"}
    for name in ("1", ""):
        assert {value: alter(changing, {key: value}, name) for value in problems} == {
            value: answer_to(message) for value, message in problems.items()
        }

    def become(value: str) -> None:
        assert alter(changing, {key: value}, validate_only=False) == (0, None)
        wait_until(lambda: described(changing, key)[0].value == value, f"{key}={value}")

    become("2")
    become("4")
    halved = "Log cleaner threads cannot be reduced to less than half the current value 4"
    assert alter(changing, {key: "1"}) == answer_to(WRAPPED.format(halved))
    # Without a value of its own the broker would have 1.
    assert alter(changing, {key: None}) == answer_to(WRAPPED.format(halved))
    become("2")


@pytest.mark.parametrize(("changes", "message"), table.STORES)
def test_a_store_that_is_refused(broker: TlsBroker, client: RawClient, changes: Settings, message: str):
    wanted = WRAPPED.format(NOT_LOADED.format(message.format(file=broker.file)))
    assert alter(client, changes) == answer_to(wanted)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(table.DESCRIBED, table.AS_DESCRIBED, id="brokers"),
        pytest.param(table.DESCRIBED_OF_LISTENERS, table.OF_LISTENERS_AS_DESCRIBED, id="listeners"),
    ],
)
def test_settings_are_described_with_those_they_inherit_from(
    changing: RawClient, settings: Settings, expected: dict[str, tuple[object, ...]]
):
    store(changing, settings)
    found = {
        entry.name: (
            entry.value,
            entry.read_only,
            entry.is_sensitive,
            entry.config_type,
            [(each.name, each.value, each.source) for each in entry.synonyms],
        )
        for entry in described(changing, *expected)
    }
    assert found == expected


def test_settings_of_sasl_have_no_effect_on_a_listener_that_is_open(broker: TlsBroker, changing: RawClient):
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="secret";'
    prefix = "listener.name.sasl."
    store(changing, {f"{prefix}sasl.enabled.mechanisms": "PLAIN", f"{prefix}plain.sasl.jaas.config": jaas})
    with RawClient(broker.addresses["SASL"]) as login:
        assert login.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    for user, code in (("alice", 0), ("carol", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        with RawClient(broker.addresses["SASL"]) as login:
            assert login.send(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert login.send(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2).error_code == code


def served(broker: TlsBroker, listener: str, own: trustme.LeafCert | None = None) -> bytes:
    """Connect to a listener; return the certificate that the broker sends."""
    host, port = broker.addresses[listener].split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        trusting(broker.authority, own).wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def test_a_new_certificate_is_sent_to_the_next_client(broker: TlsBroker, changing: RawClient):
    own, new = broker.authority.issue_cert("client"), issue(broker.authority)
    prefix, old = "listener.name.text.ssl.keystore.", served(broker, "TEXT", own=own)
    store(changing, {f"{prefix}key": new.key, f"{prefix}certificate.chain": new.chain})
    wanted = ssl.PEM_cert_to_DER_cert(new.chain)
    wait_until(lambda: served(broker, "TEXT", own=own) == wanted, "the new certificate is sent")
    store(changing, {f"{prefix}key": None, f"{prefix}certificate.chain": None})
    wait_until(lambda: served(broker, "TEXT", own=own) == old, "the first certificate is sent again")


def test_a_file_is_read_again_when_its_setting_is_sent_again(broker: TlsBroker, changing: RawClient):
    old, new, key = served(broker, "FILE"), issue(broker.authority), "listener.name.file.ssl.keystore.location"
    broker.file.write_text(new.key + new.chain, encoding="utf-8")
    os.utime(broker.file, (1, 1))
    assert served(broker, "FILE") == old
    store(changing, {key: str(broker.file)})
    wait_until(lambda: served(broker, "FILE") == ssl.PEM_cert_to_DER_cert(new.chain), "the file is read")


def test_a_certificate_with_other_names_is_refused(broker: TlsBroker, client: RawClient):
    prefix = "listener.name.text.ssl.keystore."

    def ask(*names: str, **unit: str) -> tuple[int, Any]:
        new = issue(broker.authority, *names, **unit)
        return alter(client, {f"{prefix}key": new.key, f"{prefix}certificate.chain": new.chain})

    old = 'OU="Brokers, all", O='
    code, message = ask(unit="Others")
    assert code == ErrorCode.INVALID_REQUEST
    begin, end = message.split("existing={alias=kafka, DN=")
    assert begin.endswith(NOT_COMPATIBLE.format("Keystore DistinguishedName does not match:  "))
    assert end.startswith(old)
    assert "new={alias=kafka, DN=OU=Others, O=" in end
    code, message = ask("127.0.0.1")
    assert code == ErrorCode.INVALID_REQUEST
    begin, end = message.split("existing={alias=kafka, SAN=")
    assert begin.endswith(NOT_COMPATIBLE.format("Keystore SubjectAltNames do not match:  "))
    assert "[2, localhost]" in end
    assert "new={alias=kafka, SAN=[[7, 127.0.0.1]]}" in end
    assert ask("127.0.0.1", "localhost", "other.example") == (0, None)


def test_a_listener_may_allow_a_certificate_with_other_names(broker: TlsBroker, changing: RawClient):
    prefix, new = "listener.name.limited.ssl.keystore.", issue(broker.authority, "127.0.0.1", unit="Others")
    store(changing, {f"{prefix}key": new.key, f"{prefix}certificate.chain": new.chain})
    wanted = ssl.PEM_cert_to_DER_cert(new.chain)
    wait_until(lambda: served(broker, "LIMITED") == wanted, "the new certificate is sent")


def test_a_listener_uses_its_cipher_suites_only(broker: TlsBroker):
    host, port = broker.addresses["LIMITED"].split(":")
    context = trusting(broker.authority)
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        assert secure.cipher() == (SUITE, "TLSv1.2", 128)
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with socket.create_connection((host, int(port)), timeout=10) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname=host)


def test_clients_are_checked_with_new_trusted_certificates(broker: TlsBroker, changing: RawClient):
    other = trustme.CA()
    context = trusting(broker.authority, other.issue_cert("client"))

    def is_let_in() -> bool:
        try:
            with TlsClient(broker.addresses["TEXT"], context) as login:
                return login.send(ApiVersionsRequest(), 0).error_code == 0
        except OSError:
            return False

    assert not is_let_in()
    text = broker.authority.cert_pem.bytes().decode() + other.cert_pem.bytes().decode()
    store(changing, {"listener.name.text.ssl.truststore.certificates": text})
    wait_until(is_let_in, "the other authority is trusted")


def test_a_trust_store_is_not_added_to_a_listener_without_one(broker: TlsBroker, client: RawClient):
    text = broker.authority.cert_pem.bytes().decode()
    problem = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
    wanted = answer_to(WRAPPED.format(NOT_COMPATIBLE.format(problem)))
    assert alter(client, {"listener.name.file.ssl.truststore.certificates": text}) == wanted
