"""Connections to a SASL listener: order, limits, times and secrets; answers are in `tests/conformance`."""

import struct

import pytest

from broker_core.broker.apis import SERVED
from broker_core.broker.connection import Hold
from broker_core.errors import ErrorCode
from broker_core.security.sasl import AuthenticationFailed
from broker_core.security.sasl_oauthbearer import ValidToken
from broker_core.wire import messages as m
from broker_core.wire.framing import MalformedFrame, bare_frame, decode_request
from tests.support.broker_core.sasl_world import SaslClient, plain, secured_cluster
from tests.support.messages import creation, filled

ALICE = plain("alice", "secret")


def api_versions():
    return m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def metadata():
    return m.MetadataRequest(topics=[], allow_auto_topic_creation=False)


@pytest.fixture
def cluster():
    return secured_cluster()


@pytest.fixture
def client(cluster):
    return SaslClient(cluster)


def test_raw_tokens_may_be_empty_and_are_refused_without_a_response(client):
    client.handshake("PLAIN", 0)
    assert client.bare(b"") is None
    client.pass_time(100)
    assert (client.sent, client.closed) == ([], True)


@pytest.mark.parametrize(("name", "expires_ms"), [(b"alice", None), ("alice", "soon"), (None, 1)])
def test_a_valid_token_has_a_name_and_a_time(name, expires_ms):
    with pytest.raises(TypeError, match="expected"):
        ValidToken(name, expires_ms)


def test_time_of_a_token_may_be_a_fraction():
    assert ValidToken("alice", 1.5).expires_ms == 1


def test_failing_mechanism_affects_only_its_connection(cluster):
    client = SaslClient(cluster, token_validator=lambda token, now_ms: None)
    handshake = client.encoded(m.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 0)
    # Sent together, so that the broker handles the token after it has sent the previous response.
    client.raw(handshake + bare_frame(b"n,,\x01auth=Bearer abc\x01\x01"))
    client.pass_time(100)
    assert client.closed


def test_api_versions_of_an_unknown_version_does_not_advance_the_state(client):
    client.raw(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    assert client.sent.pop() is not None
    assert client.ask(api_versions(), 4).error_code == 0


def test_api_versions_with_invalid_software_name_does_not_advance_the_state(client):
    client.post(m.ApiVersionsRequest(client_software_name="", client_software_version="1"), 4)
    assert struct.unpack_from(">iih", client.sent.pop())[2] == ErrorCode.INVALID_REQUEST
    client._expected.clear()
    assert client.ask(api_versions(), 4).error_code == 0


# Requests before authentication


@pytest.mark.parametrize("key", sorted(set(SERVED) - {17, 18}))
def test_requests_before_the_handshake_are_refused(client, key, monkeypatch):
    decoded = []
    monkeypatch.setattr("broker_core.broker.connection.decode_request", decoded.append)
    client.raw(struct.pack(">ihhih", 10, key, SERVED[key].max_version, 7, -1))
    client.pass_time(100)
    assert (client.sent, client.closed, decoded) == ([], True, [])


@pytest.mark.parametrize("key", sorted(set(SERVED) - {36}))
def test_requests_during_the_exchange_are_refused(client, key):
    client.handshake()
    versions = {17: 1, 18: 0}
    body = b"\0\5PLAIN" if key == 17 else b""
    client.raw(struct.pack(">ihhih", 10 + len(body), key, versions.get(key, SERVED[key].max_version), 7, -1) + body)
    assert (client.sent, client.closed) == ([], False)
    client.pass_time(100)
    assert client.closed
    if key in versions:
        assert struct.unpack_from(">iih", client.sent.pop())[1:] == (7, ErrorCode.ILLEGAL_SASL_STATE)
    assert client.sent == []


def test_produce_pipelined_after_a_wrong_password_is_not_handled(cluster, client):
    cluster.controller.create_topic("t", 1)
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    client.post(creation("forbidden"), 5)
    client.pass_time(100)
    assert client.closed
    assert set(cluster.metadata.topics) == {"t"}


def test_all_requests_may_arrive_in_one_packet(client):
    requests = (
        (api_versions(), 4),
        (m.SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (m.SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        (metadata(), 9),
    )
    client.raw(b"".join(client.encoded(*each) for each in requests))
    assert [client.take().error_code for _ in range(3)] == [0, 0, 0]
    assert client.take().brokers


# Failed authentication


@pytest.mark.parametrize("token", [plain("alice", "wrong"), plain("unknown", "secret")])
def test_wrong_password_is_answered_after_the_failure_delay(client, token):
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=token), 2)
    client.pass_time(99)
    assert (client.sent, client.closed) == ([], False)
    client.pass_time(1)
    answer = client.take()
    assert (answer.error_code, answer.error_message, client.closed) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
        True,
    )


def test_failure_delay_counts_from_the_request(cluster, client):
    client.handshake()
    cluster_ms = cluster.now_ms
    request = m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong"))
    client._connection.receive(client.encoded(request, 2), cluster_ms + 50_000)
    cluster.advance(cluster_ms + 50_099)
    assert not client.sent
    cluster.advance(cluster_ms + 50_100)
    assert client.sent


def test_response_without_a_failure_delay_is_immediate():
    client = SaslClient(secured_cluster(connection_failed_authentication_delay_ms="0"))
    client.handshake()
    assert client.token(plain("alice", "wrong")).error_code == 58
    assert client.closed


def test_refused_client_is_not_read_any_more(client):
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    client.raw(b"x" * 1_000_000)
    client.post(m.SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert client._connection.waiting_bytes == 0
    assert client._connection._reader.buffered_bytes == 0
    client.pass_time(100)
    assert len(client.sent) == 1
    assert client.principal == "User:ANONYMOUS"


def test_client_that_disconnects_during_the_delay_is_removed(client):
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    client._connection.lost()
    client.pass_time(100)
    assert (client.sent, client.closed) == ([], False)


# Limits before authentication


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 524_289])
def test_oversized_token_frame_is_refused_at_its_length(client, length):
    client.raw(struct.pack(">i", length))
    assert client.closed


def test_malformed_frames_allocate_no_memory(client):
    for _ in range(1000):
        client.raw(b"\x00\x07\xff\xff" + b"\xee" * 10_000)
    assert client.closed or client._connection._reader.buffered_bytes <= 524_292


def test_unauthenticated_client_that_does_not_read_is_paused_early():
    client = SaslClient(secured_cluster(sasl_server_max_receive_size="14000"))
    unknown_version = struct.pack(">ihhih", 10, 18, 99, 7, -1)
    client._connection.hold(Hold.CLIENT)
    client.raw(unknown_version * 1_000)
    assert not client._connection.is_far_ahead(64 * 1024 * 1024)
    client.raw(unknown_version)
    assert client._connection.is_far_ahead(64 * 1024 * 1024)
    client._connection.release(Hold.CLIENT, client.cluster.now_ms)
    client.cluster.settle(client.cluster.now_ms)
    assert (len(client.sent), client._connection.is_far_ahead(1000)) == (1_001, False)


def test_authenticated_client_may_pipeline_more():
    client = SaslClient(secured_cluster(sasl_server_max_receive_size="14000"))
    client.log_in()
    client._connection.hold(Hold.CLIENT)
    client.raw(struct.pack(">ihhih", 10, 18, 99, 7, -1) * 1_001)
    assert not client._connection.is_far_ahead(64 * 1024 * 1024)
    assert client._connection.is_far_ahead(14_000)


def test_longer_requests_are_accepted_immediately_after_authentication():
    cluster = secured_cluster(sasl_server_max_receive_size="200")
    client = SaslClient(cluster)
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    client.post(filled(m.MetadataRequest, topics=[{"name": "t" * 200}], allow_auto_topic_creation=False), 9)
    assert client.take().error_code == 0
    assert client.take().topics[0].name == "t" * 200
    assert not client.closed


# Authenticating again (KIP-368)


@pytest.fixture
def short_lived():
    client = SaslClient(secured_cluster(connections_max_reauth_ms="5000"))
    assert client.log_in().session_lifetime_ms == 5000
    return client


def test_expired_session_closes_the_connection_at_its_next_request(short_lived):
    short_lived.pass_time(5000)
    assert short_lived.ask(metadata(), 9).brokers
    short_lived.pass_time(1)
    short_lived.post(metadata(), 9)
    assert (short_lived.sent, short_lived.closed) == ([], True)


def test_other_requests_during_reauthentication_are_refused(short_lived):
    short_lived.handshake()
    short_lived.post(metadata(), 9)
    short_lived.pass_time(100)
    assert (short_lived.sent, short_lived.closed) == ([], True)


def test_oversized_token_during_reauthentication_is_refused():
    client = SaslClient(secured_cluster(connections_max_reauth_ms="5000", sasl_server_max_receive_size="200"))
    client.log_in()
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=ALICE + b"x" * 200), 2)
    client.pass_time(100)
    assert (client.sent, client.closed) == ([], True)


@pytest.mark.parametrize(("length", "is_taken"), [(200, True), (201, False)])
def test_oversized_raw_token_during_reauthentication_is_refused(length, is_taken, monkeypatch):
    client = SaslClient(secured_cluster(connections_max_reauth_ms="5000", sasl_server_max_receive_size="200"))
    client.log_in()
    client.handshake("PLAIN", 0)
    seen = []

    def evaluate(_, token, now_ms):
        seen.append(token)
        raise AuthenticationFailed

    monkeypatch.setattr("broker_core.security.sasl_passwords.Plain.evaluate", evaluate)
    client.bare(b"x" * length)
    client.pass_time(100)
    assert (bool(seen), client.closed) == (is_taken, True)


def test_reauthentication_more_than_once_per_second_is_an_illegal_state(short_lived):
    short_lived.log_in()
    short_lived.pass_time(999)
    assert short_lived.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert short_lived.ask(metadata(), 9).brokers
    short_lived.pass_time(1)
    assert short_lived.log_in().error_code == 0


def test_expired_token_ends_the_session():
    cluster = secured_cluster()
    client = SaslClient(cluster, token_validator=lambda token, now_ms: ValidToken("carol", now_ms + 2000))
    client.handshake("OAUTHBEARER")
    assert client.token(b"n,,\x01auth=Bearer x\x01\x01").session_lifetime_ms == 2000
    assert client.principal == "User:carol"
    client.pass_time(2001)
    client.post(metadata(), 9)
    assert client.closed


def test_mechanism_may_limit_the_session_lifetime():
    key = "listener.name.secure.plain.connections.max.reauth.ms"
    cluster = secured_cluster(connections_max_reauth_ms="5000")
    cluster.config = cluster.config.override({key: "700"})
    client = SaslClient(cluster)
    assert client.log_in().session_lifetime_ms == 700


# Secrets


@pytest.mark.parametrize(
    ("kind", "body"), [(m.SaslAuthenticateRequest, b"\0\0\0\0"), (m.AlterUserScramCredentialsRequest, b"\0\1\1\0")]
)
def test_decoder_errors_about_secrets_are_hidden(kind, body, monkeypatch):
    def choke(*_args, **_kwargs):
        raise ValueError("keep-private")

    monkeypatch.setattr(kind, "decode", choke)
    with pytest.raises(MalformedFrame, match="cannot be decoded: ValueError") as malformed:
        decode_request(struct.pack(">hhih", kind.API_KEY, 0, 7, -1) + body, SERVED)
    assert "keep-private" not in str(malformed.value)


def test_log_lines_never_contain_passwords(client, cluster, caplog):
    caplog.set_level("DEBUG")
    client.handshake()
    client.post(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "keep-private")), 2)
    client.pass_time(100)
    for frame in (b"\xffkeep-private", b"\0\xff\0keep-private\0\0"):
        other = SaslClient(cluster)
        other.handshake()
        other.raw(struct.pack(">ihhih", 10 + len(frame), 36, 1, 7, -1) + frame)
        other.pass_time(100)
        assert other.closed
    assert "closing connection" in caplog.text
    assert "keep-private" not in caplog.text
