"""Authentication: its steps, and the responses to failures, the same in Apache Kafka and broker_core."""

import base64
import hashlib
import json
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from scramp import ScramClient
from scramp.core import ScramMechanism

from tests.support.clients import make_topic, unique
from tests.support.java_tools import java_tool
from tests.support.raw_client import RawClient
from tests.support.secured import MAX_RECEIVE_BYTES, MECHANISMS, PROTOCOLS, REAUTH_MS, USERS, Secured, secured
from tests.support.tls_client import TlsClient, trusting
from tests.support.waiting import wait_until

UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58
TOPIC_AUTHORIZATION_FAILED = 29
MESSAGES = {
    0: None,
    33: "Unknown SCRAM mechanism",
    91: "Attempt to delete a user credential that does not exist",
    92: "A user credential cannot be altered twice in the same request",
}
SCRAM_TYPES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


@pytest.fixture(scope="module")
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return a running broker with a listener of each protocol, and users who can authenticate."""
    with secured(request.param, tmp_path_factory.mktemp(f"secured-{request.param}")) as broker:
        for name, password in USERS.items():
            for mechanism in SCRAM_TYPES:
                assert alter_users(broker, upsertion(name, mechanism, password)) == {name: 0}
        yield broker


@pytest.fixture
def client(locked: Secured) -> Iterator[RawClient]:
    """Return a connection to the listener with SASL."""
    with RawClient(locked.addresses["SASL"]) as client:
        yield client


def upsertion(name: str, mechanism: str, password: str, *, iterations: int = 4096) -> Any:
    salt = b"a salt of its own"
    salted = hashlib.pbkdf2_hmac(ScramMechanism(mechanism).hf().name, password.encode(), salt, iterations)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=SCRAM_TYPES[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name: str, mechanism: int = 1) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter_users(locked: Secured, *changes: Any) -> dict[str, int]:
    upsertions = [change for change in changes if hasattr(change, "salt")]
    with RawClient(locked.bootstrap_servers) as client:
        answer = client.send(
            AlterUserScramCredentialsRequest(
                deletions=[change for change in changes if change not in upsertions], upsertions=upsertions
            ),
            0,
        )
    messages = {result.error_code: result.error_message for result in answer.results}
    assert all(messages[code] == MESSAGES[code] for code in messages if code in MESSAGES)
    return {result.user: result.error_code for result in answer.results}


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.send(SaslHandshakeRequest(mechanism=mechanism), version)


def token(client: RawClient, auth_bytes: bytes, version: int = 2) -> Any:
    return client.send(SaslAuthenticateRequest(auth_bytes=auth_bytes), version)


def plain(name: str = "alice", password: str | None = None) -> bytes:
    return f"\0{name}\0{USERS[name] if password is None else password}".encode()


def log_in(client: RawClient, name: str = "alice") -> Any:
    assert handshake(client).error_code == 0
    return token(client, plain(name))


# Successful authentication


@pytest.mark.parametrize("version", [0, 1, 2])
def test_client_authenticates_step_by_step(client: RawClient, version: int):
    assert client.send(api_versions(), 4).error_code == 0
    answer = handshake(client)
    assert (answer.error_code, sorted(answer.mechanisms)) == (0, sorted(MECHANISMS))
    answer = token(client, plain(), version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert client.send(metadata(), 9).brokers


@pytest.mark.parametrize("mechanism", SCRAM_TYPES)
def test_scram_takes_two_round_trips(client: RawClient, mechanism: str):
    assert handshake(client, mechanism).error_code == 0
    scram = ScramClient([mechanism], "bob", USERS["bob"])
    scram.set_server_first(token(client, scram.get_client_first().encode()).auth_bytes.decode())
    answer = token(client, scram.get_client_final().encode())
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    scram.set_server_final(answer.auth_bytes.decode())
    assert client.send(metadata(), 9).brokers


def test_tokens_are_raw_after_a_version_0_handshake(client: RawClient):
    assert handshake(client, "SCRAM-SHA-256", 0).error_code == 0
    scram = ScramClient(["SCRAM-SHA-256"], "alice", USERS["alice"])
    steps = (scram.get_client_first, scram.set_server_first), (scram.get_client_final, scram.set_server_final)
    for give, take in steps:
        message = give().encode()
        client.send_bytes(struct.pack(">i", len(message)) + message)
        take(client.read_frame().decode())
    assert client.send(metadata(), 9).brokers


@pytest.mark.parametrize("listener", [name for name, protocol in PROTOCOLS.items() if protocol.startswith("SASL")])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_authenticates(locked: Secured, listener: str, mechanism: str):
    admin = AdminClient(
        {
            "bootstrap.servers": locked.addresses[listener],
            "security.protocol": PROTOCOLS[listener],
            "sasl.mechanism": mechanism,
            "ssl.ca.pem": locked.authority.cert_pem.bytes().decode(),
            **(
                {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}
                if mechanism == "OAUTHBEARER"
                else {"sasl.username": "alice", "sasl.password": USERS["alice"]}
            ),
        }
    )
    admin.poll(0)
    found = admin.list_topics(timeout=60).brokers.values()
    assert {f"{broker.host}:{broker.port}" for broker in found} == {locked.addresses[listener]}


def run_java(tool: str, *arguments: str) -> str:
    return java_tool(tool, *arguments).output


@pytest.mark.usefixtures("apache_asked_for")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_client_authenticates(locked: Secured, tmp_path: Path, mechanism: str):
    modules = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
    options = (
        'unsecuredLoginStringClaim_sub="alice"'
        if mechanism == "OAUTHBEARER"
        else f'username="alice" password="{USERS["alice"]}"'
    )
    module = f"org.apache.kafka.common.security.{modules.get(mechanism, 'scram.ScramLoginModule')}"
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": locked.authority.cert_pem.bytes().decode().replace("\n", "\\n"),
        "sasl.jaas.config": f"{module} required {options};",
    }
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in config.items()))
    topic = make_topic(locked)
    listed = run_java(
        "TopicCommand", "--bootstrap-server", locked.addresses["SECURE"], "--command-config", str(path), "--list"
    )
    assert topic in listed.split()


@pytest.mark.usefixtures("apache_asked_for")
def test_java_client_reauthenticates(locked: Secured, tmp_path: Path):
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nretries=0\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{USERS["alice"]}";\n'
    )
    seconds = 3 * REAUTH_MS // 1000
    printed = run_java(
        "ProducerPerformance",
        "--bootstrap-server",
        locked.addresses["SHORT"],
        "--command-config",
        str(path),
        "--topic",
        make_topic(locked),
        "--num-records",
        str(100 * seconds),
        "--record-size",
        "10",
        "--throughput",
        "100",
    )
    # A record that was lost with a connection would not be counted.
    assert f"{100 * seconds} records sent" in printed


# Failed authentication


@pytest.mark.parametrize(
    "auth_bytes",
    [
        plain("alice", "wrong"),
        b"\0nobody\0secret",
        plain("alice", ""),
        b"\0\0secret",
        b"bob" + plain("alice"),
        b"alice",
        b"a\0b\0c\0d",
    ],
)
def test_plain_failure_has_the_expected_message(client: RawClient, auth_bytes: bytes):
    handshake(client)
    answer = token(client, auth_bytes)
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == {
        plain("alice", ""): "Authentication failed: password not specified",
        b"\0\0secret": "Authentication failed: username not specified",
        b"bob"
        + plain("alice"): "Authentication failed: Client requested an authorization id that is different from username",
        b"alice": "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
        b"a\0b\0c\0d": "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
    }.get(auth_bytes, "Authentication failed: Invalid username or password")
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("mechanism", SCRAM_TYPES)
@pytest.mark.parametrize("name", ["alice", "unknown"])
def test_scram_failure_does_not_reveal_the_wrong_part(client: RawClient, mechanism: str, name: str):
    handshake(client, mechanism)
    scram = ScramClient([mechanism], name, "wrong")
    answer = token(client, scram.get_client_first().encode())
    if name == "alice":
        scram.set_server_first(answer.auth_bytes.decode())
        answer = token(client, scram.get_client_final().encode())
    assert (answer.error_code, answer.error_message) == (
        SASL_AUTHENTICATION_FAILED,
        (f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"),
    )
    assert client.is_closed_by_peer()


def unsigned_token(**claims: Any) -> str:
    def section(content: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{section({'alg': 'none'})}.{section(claims)}."


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "alice"},
        {"sub": "alice", "exp": 1},
        {"exp": 9_000_000_000},
        {"sub": "", "exp": 9_000_000_000},
        {"sub": "alice", "exp": 9_000_000_000, "iat": 8_000_000_000},
    ],
)
def test_invalid_token_is_answered_before_the_failure(client: RawClient, claims: dict[str, Any]):
    handshake(client, "OAUTHBEARER")
    answer = token(client, f"n,,\x01auth=Bearer {unsigned_token(**claims)}\x01\x01".encode())
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = token(client, b"\x01")
    assert (answer.error_code, answer.error_message) == (SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')
    assert client.is_closed_by_peer()


def test_token_determines_the_session_lifetime(client: RawClient):
    handshake(client, "OAUTHBEARER")
    valid = unsigned_token(sub="carol", exp=time.time() + 100)
    answer = token(client, f"n,,\x01auth=Bearer {valid}\x01\x01".encode())
    assert answer.error_code == 0
    assert 50_000 < answer.session_lifetime_ms <= 100_000


def test_disabled_mechanism_is_answered_with_the_enabled_ones(client: RawClient):
    answer = handshake(client, "GSSAPI")
    assert (answer.error_code, sorted(answer.mechanisms)) == (UNSUPPORTED_SASL_MECHANISM, sorted(MECHANISMS))
    assert client.is_closed_by_peer()


# Requests in the wrong order


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: (metadata(), 9),
        lambda: (SaslAuthenticateRequest(auth_bytes=plain()), 2),
        lambda: (FindCoordinatorRequest(key_type=0, coordinator_keys=["x"]), 4),
        lambda: (DescribeConfigsRequest(resources=[]), 4),
    ],
)
@pytest.mark.parametrize("after_versions", [False, True])
def test_request_before_the_handshake_closes_the_connection(client: RawClient, request_of: Any, after_versions: bool):
    if after_versions:
        client.send(api_versions(), 4)
    client.post(*request_of())
    assert client.is_closed_by_peer()


def test_second_api_versions_closes_the_connection(client: RawClient):
    assert client.send(api_versions(), 4).error_code == 0
    client.post(api_versions(), 4)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("key", [17, 18])
def test_second_handshake_during_an_exchange_is_an_illegal_state(client: RawClient, key: int):
    handshake(client)
    if key == 17:
        client.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    else:
        client.post(api_versions(), 0)
    assert struct.unpack_from(">ih", client.read_frame())[1] == ILLEGAL_SASL_STATE
    assert client.is_closed_by_peer()


def test_handshake_after_authentication_is_an_illegal_state_and_keeps_the_connection(client: RawClient):
    log_in(client)
    assert handshake(client).error_code == ILLEGAL_SASL_STATE
    answer = token(client, plain())
    assert (answer.error_code, answer.error_message) == (
        ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
    assert client.send(metadata(), 9).brokers


def test_plaintext_listener_refuses_sasl(locked: Secured):
    with RawClient(locked.bootstrap_servers) as client:
        assert handshake(client).error_code == ILLEGAL_SASL_STATE
        assert token(client, plain()).error_code == ILLEGAL_SASL_STATE
        assert client.send(metadata(), 9).brokers


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", MAX_RECEIVE_BYTES + 1),
        b"GET / HTTP/1.1\r\n",
        struct.pack(">i", 4) + b"\0\3\0\1",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
    ],
)
def test_malformed_bytes_before_authentication_close_the_connection(client: RawClient, data: bytes):
    client.send_bytes(data)
    assert client.is_closed_by_peer()


# Re-authentication (KIP-368)


@pytest.fixture
def short_lived(locked: Secured) -> Iterator[RawClient]:
    """Return a connection with a short session."""
    with RawClient(locked.addresses["SHORT"]) as client:
        assert log_in(client).session_lifetime_ms == REAUTH_MS
        yield client


def wait_for_expiry(since: float) -> None:
    wait_until(lambda: time.monotonic() > since + REAUTH_MS / 1000 + 0.1, "the session has expired")


def test_expired_session_closes_the_connection_at_its_next_request(short_lived: RawClient):
    since = time.monotonic()
    assert short_lived.send(metadata(), 9).brokers
    wait_for_expiry(since)
    short_lived.post(metadata(), 9)
    assert short_lived.is_closed_by_peer()


def test_reauthenticated_session_continues(short_lived: RawClient):
    since = time.monotonic()
    assert log_in(short_lived).session_lifetime_ms == REAUTH_MS
    assert short_lived.send(metadata(), 9).brokers
    wait_for_expiry(since)
    assert log_in(short_lived).error_code == 0
    assert short_lived.send(metadata(), 9).brokers


def test_reauthentication_as_another_user_is_refused(short_lived: RawClient):
    handshake(short_lived)
    answer = token(short_lived, plain("bob"))
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message.startswith("Cannot change principals during re-authentication")
    assert short_lived.is_closed_by_peer()


def test_reauthentication_with_another_mechanism_closes_the_connection(short_lived: RawClient):
    assert handshake(short_lived, "SCRAM-SHA-256").error_code == 0
    short_lived.post(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
    assert short_lived.is_closed_by_peer()


def test_reauthentication_more_than_once_per_second_is_an_illegal_state(short_lived: RawClient):
    log_in(short_lived)
    assert handshake(short_lived).error_code == ILLEGAL_SASL_STATE


# Users


def described(locked: Secured, *names: str) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    """Return error, message, and mechanisms with their iterations, of these users or of all."""
    user = DescribeUserScramCredentialsRequest.UserName
    with RawClient(locked.bootstrap_servers) as client:
        request = DescribeUserScramCredentialsRequest(users=[user(name=each) for each in names] or None)
        answer = client.send(request, 0)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        result.user: (
            result.error_code,
            result.error_message,
            # Kafka's order of them is not fixed.
            sorted((info.mechanism, info.iterations) for info in result.credential_infos),
        )
        for result in answer.results
    }


def test_users_are_changed_independently(locked: Secured):
    name, few, many = unique("user"), unique("few"), unique("many")
    wanted = upsertion(name, "SCRAM-SHA-256", "x")
    twice = upsertion(few, "SCRAM-SHA-256", "x")
    assert alter_users(
        locked,
        wanted,
        upsertion(many, "SCRAM-SHA-512", "x", iterations=16_385),
        upsertion(few, "SCRAM-SHA-256", "x", iterations=4095),
    ) == {name: 0, many: 93, few: 93}
    assert alter_users(locked, twice, twice) == {few: 92}
    assert alter_users(locked, deletion(few)) == {few: 91}
    assert alter_users(locked, deletion(name, 7)) == {name: UNSUPPORTED_SASL_MECHANISM}
    assert alter_users(
        locked, upsertion(name, "SCRAM-SHA-512", "x", iterations=8192), upsertion("", "SCRAM-SHA-256", "x")
    ) == {name: 0, "": 93}
    assert described(locked, name, few, "alice", "alice") == {
        name: (0, "", [(1, 4096), (2, 8192)]),
        few: (91, f"Attempt to describe a user credential that does not exist: {few}", []),
        "alice": (92, "Cannot describe SCRAM credentials for the same user twice in a single request: alice", []),
    }
    assert alter_users(locked, deletion(name)) == {name: 0}
    everyone = described(locked)
    assert (everyone[name], "alice" in everyone, few in everyone) == ((0, "", [(2, 8192)]), True, False)
    assert alter_users(locked, deletion(name, 2)) == {name: 0}


# Certificates and listeners


def test_client_principal_comes_from_its_certificate(locked: Secured):
    topic = make_topic(locked)
    acl = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name=topic,
        resource_pattern_type=3,
        host="*",
        operation=2,
        permission_type=3,
        principal=r"User:CN=Zoë \"Z\"\, B.,OU=R\+D,O=Example",
    )
    with RawClient(locked.bootstrap_servers) as client:
        assert client.send(CreateAclsRequest(creations=[acl]), 3).results[0].error_code == 0
    named = locked.authority.issue_cert(
        "x", common_name='Zoë "Z", B.', organization_unit_name="R+D", organization_name="Example"
    )
    other = locked.authority.issue_cert("x", common_name="other")

    def code(certificate: Any) -> int:
        with TlsClient(locked.addresses["TLS"], trusting(locked.authority, certificate)) as client:
            wanted = MetadataRequest.MetadataRequestTopic(name=topic)
            answer = client.send(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 9)
            return answer.topics[0].error_code

    wait_until(lambda: code(other) == TOPIC_AUTHORIZATION_FAILED, "the ACL applies to no other user")
    assert code(named) == 0


def test_metadata_returns_addresses_of_the_requested_listener(locked: Secured):
    for listener in ("PLAINTEXT", "SASL"):
        with RawClient(locked.addresses[listener]) as client:
            if listener == "SASL":
                log_in(client)
            brokers = [*client.send(metadata(), 9).brokers, *client.send(DescribeClusterRequest(), 0).brokers]
            assert {f"{broker.host}:{broker.port}" for broker in brokers} == {locked.addresses[listener]}
            wait_until(partial(has_coordinator, client, locked.addresses[listener]), "the broker has a coordinator")


def has_coordinator(client: RawClient, address: str) -> bool:
    found = client.send(FindCoordinatorRequest(key="x", key_type=0), 3)
    return (found.error_code, f"{found.host}:{found.port}") == (0, address)
