"""The mechanisms and the order of their steps, without a connection."""

import base64
import hashlib
import hmac
import itertools
import json

import pytest
from scramp import ScramClient

from broker_core.broker.endpoints import Listener
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.security.sasl import ADMITTED, AuthenticationFailed, SaslSession, SaslSettings, SaslState, Step
from broker_core.security.sasl_oauthbearer import InvalidToken, OAuthBearer, UnsecuredTokens, ValidToken
from broker_core.security.sasl_passwords import (
    Plain,
    Scram,
    check_new_credential,
    credential_of_password,
    credential_of_salted,
)
from broker_core.security.sasl_settings import SaslServices, parse_jaas, sasl_settings, users_of
from tests.support.broker_core.sasl_world import PASSWORDS, plain
from tests.support.direct import CountingEntropy

NOW_MS = 1_700_000_000_000


def session(max_reauth_ms=0, passwords=PASSWORDS, validator=None):
    return SaslSession(
        SaslSettings(
            {"PLAIN": lambda: Plain(passwords), "OAUTHBEARER": lambda: OAuthBearer(validator or UnsecuredTokens())},
            {"PLAIN": max_reauth_ms, "OAUTHBEARER": max_reauth_ms} if max_reauth_ms else {},
            1000,
            100,
        )
    )


# Steps

STEPS_WITH_A_WAY_IN = {
    (SaslState.FRESH, Step.VERSIONS),
    (SaslState.FRESH, Step.HANDSHAKE),
    (SaslState.VERSIONS_TOLD, Step.HANDSHAKE),
    (SaslState.EXCHANGE, Step.TOKEN),
}


@pytest.mark.parametrize(("state", "step"), list(itertools.product(SaslState, [*Step, None])))
def test_every_request_in_every_state_is_accepted_or_refused(state, step):
    walked = session()
    walked.state = state
    assert walked.admits(step) is ((state, step) in STEPS_WITH_A_WAY_IN)
    assert state in ADMITTED


# Sessions that end (KIP-368)


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_lives_ms", "lifetime_ms"),
    [
        (0, None, 0),
        (1, None, 1),
        (5000, None, 5000),
        (0, 3000, 3000),
        (5000, 3000, 3000),
        (2000, 3000, 2000),
        (0, -50, 0),
        (0, 10**30, 2**63 - 1),
    ],
)
def test_session_lifetime_is_limited_by_broker_and_credentials(max_reauth_ms, token_lives_ms, lifetime_ms):
    expires_ms = None if token_lives_ms is None else NOW_MS + token_lives_ms
    walked = session(max_reauth_ms, validator=lambda token, now_ms: ValidToken("alice", expires_ms))
    walked.handshake("OAUTHBEARER", 1, NOW_MS)
    assert walked.evaluate(bearer("x"), NOW_MS) == (b"", lifetime_ms)
    ends = max_reauth_ms > 0 or token_lives_ms is not None
    assert walked.expires_ms == (NOW_MS + lifetime_ms if ends else None)
    assert walked.has_expired(NOW_MS + lifetime_ms) is False
    assert walked.has_expired(NOW_MS + lifetime_ms + 1) is ends


@pytest.mark.parametrize(("again", "what"), [(False, "authentication"), (True, "re-authentication")])
def test_failure_names_only_the_mechanism(again, what):
    walked = session(5000, validator=lambda token, now_ms: ValidToken("alice"))
    walked.handshake("OAUTHBEARER", 1, NOW_MS)
    if again:
        walked.evaluate(bearer("x"), NOW_MS)
        walked.handshake("OAUTHBEARER", 1, NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        walked.evaluate(b"nonsense", NOW_MS)
    assert failed.value.message == (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism OAUTHBEARER"
    )


# PLAIN


def test_plain_refuses_empty_passwords():
    with pytest.raises(AuthenticationFailed):
        Plain({"alice": ""}).evaluate(plain("alice", ""), NOW_MS)


@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("Zoë", "pässwörd"), ("a b", "x=y;\"'")])
def test_plain_accepts_correct_credentials(name, password):
    mechanism = Plain({name: password})
    assert mechanism.evaluate(plain(name, password, name), NOW_MS) == b""
    assert mechanism.user_name == name


# SCRAM


def scram(mechanism="SCRAM-SHA-256", password="secret"):
    credential = credential_of_password(mechanism, password, CountingEntropy())
    return Scram(
        mechanism, lambda asked, name: credential if (asked, name) == (mechanism, "alice") else None, CountingEntropy()
    )


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n==,r=x",
        b"," * 1000,
    ],
)
def test_scram_refuses_malformed_messages(token):
    with pytest.raises(AuthenticationFailed):
        scram().evaluate(token, NOW_MS)


def test_scram_proof_is_valid_for_one_challenge_only():
    first, client = scram(), ScramClient(["SCRAM-SHA-256"], "alice", "secret", c_nonce="abc")
    client.set_server_first(first.evaluate(client.get_client_first().encode(), NOW_MS).decode())
    proof = client.get_client_final().encode()
    first.evaluate(proof, NOW_MS)
    entropy = CountingEntropy()
    entropy.random_bytes(1)
    second = Scram("SCRAM-SHA-256", first._credential_of, entropy)
    second.evaluate(b"n,,n=alice,r=abc", NOW_MS)
    with pytest.raises(AuthenticationFailed):
        second.evaluate(proof, NOW_MS)


def test_scram_matches_the_test_vector_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = credential_of_salted("SCRAM-SHA-256", salted, salt, 4096)
    server = Scram("SCRAM-SHA-256", lambda mechanism, name: credential, _Hex("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"))
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = server.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        NOW_MS,
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("salt", [b"s", b"short"])
def test_scram_takes_a_salt_of_any_length(salt: bytes):
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", salt, 4096)
    credential = credential_of_salted("SCRAM-SHA-256", salted, salt, 4096)
    server = Scram("SCRAM-SHA-256", lambda mechanism, name: credential, CountingEntropy())
    first = server.evaluate(b"n,,n=alice,r=abc", NOW_MS).decode()
    assert f"s={base64.b64encode(salt).decode()}," in first
    nonce = first.partition(",")[0]
    message = f"n=alice,r=abc,{first},c=biws,{nonce}".encode()
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server.evaluate(f"c=biws,{nonce},p={base64.b64encode(proof).decode()}".encode(), NOW_MS)
    assert server.user_name == "alice"


class _Hex:
    """A source of random bytes that print as the nonce of the test vector."""

    def __init__(self, text):
        self._text = text

    def random_bytes(self, count):
        text = self._text

        class Bytes(bytes):
            def hex(self):
                return text

        return Bytes(count)


@pytest.mark.parametrize(
    ("name", "mechanism", "iterations", "code"),
    [
        ("", 1, 4096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", 0, 4096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("a", 3, 4096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("a", 1, 4095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", 2, 16_385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_credential_outside_the_bounds_is_refused(name, mechanism, iterations, code):
    with pytest.raises(KafkaError) as refused:
        check_new_credential(name, mechanism, iterations)
    assert refused.value.code is code


@pytest.mark.parametrize("iterations", [4096, 16_384])
def test_credential_within_the_bounds_is_stored(iterations):
    check_new_credential("a", 1, iterations)


def test_credential_repr_hides_secrets():
    credential = credential_of_password("SCRAM-SHA-256", "secret", CountingEntropy())
    assert repr(credential) == "ScramCredential(iterations=4096)"


def test_listener_repr_hides_passwords():
    world = SaslServices(lambda mechanism, name: None, CountingEntropy(), {"alice": "hunter2"})
    assert "hunter2" not in repr(Listener("SECURE", {}, sasl_settings(BrokerConfig(), "SECURE", world)))


# OAUTHBEARER


def bearer(token, authorization_id="", more=""):
    return f"n,{authorization_id and 'a=' + authorization_id},\x01auth=Bearer {token}\x01{more}\x01".encode()


def jws(claims, header=None, signature=""):
    def section(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{section({'alg': 'none'} if header is None else header)}.{section(claims)}.{signature}"


GOOD = {"sub": "alice", "exp": NOW_MS / 1000 + 60, "iat": NOW_MS / 1000 - 1}


def test_token_authenticates_its_principal_while_valid():
    server = OAuthBearer(UnsecuredTokens())
    assert server.evaluate(bearer(jws(GOOD), "alice", "traceId=7\x01"), NOW_MS) == b""
    assert (server.user_name, server.expires_ms) == ("alice", NOW_MS + 60_000)


def test_missing_scope_is_reported():
    server = OAuthBearer(UnsecuredTokens(required_scope=("kafka", "admin")))
    reply = server.evaluate(bearer(jws({**GOOD, "scope": "kafka"})), NOW_MS)
    assert reply == b'{"status":"insufficient_scope", "scope":"[kafka, admin]"}'


@pytest.mark.parametrize("scope", ["admin kafka", ["kafka", "admin"]])
def test_scopes_are_accepted_as_text_and_lists(scope):
    assert UnsecuredTokens(required_scope=("kafka", "admin"))(jws({**GOOD, "scope": scope}), NOW_MS)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x",
        b"\xff",
        b"y,,\x01auth=Bearer x\x01\x01",
        bearer("to ken"),
        bearer("x", "a,b"),
        b"n,,\x01" + b"a=b\x01" * 1000,
    ],
)
def test_oauthbearer_refuses_malformed_messages(message):
    with pytest.raises(AuthenticationFailed):
        OAuthBearer(lambda token, now_ms: ValidToken("alice")).evaluate(message, NOW_MS)


def test_authorization_id_must_match_the_token():
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        OAuthBearer(UnsecuredTokens()).evaluate(bearer(jws(GOOD), "bob"), NOW_MS)


def _raises(token, now_ms):
    raise RuntimeError(f"cannot look up {token}")


@pytest.mark.parametrize(
    ("broken", "named"), [(_raises, "RuntimeError"), (lambda token, now_ms: None, "AttributeError")]
)
def test_failing_validator_refuses_clients_without_details(broken, named, caplog):
    session = SaslSession(SaslSettings({"OAUTHBEARER": lambda: OAuthBearer(broken)}, {}, 1000, 0))
    session.handshake("OAUTHBEARER", 1, NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        session.evaluate(bearer("keep-private"), NOW_MS)
    assert failed.value.message.endswith("invalid credentials with SASL mechanism OAUTHBEARER")
    assert not session.is_open
    assert named in caplog.text
    assert "keep-private" not in caplog.text


@pytest.mark.parametrize(
    "token",
    [
        "",
        "..",
        "a.b",
        jws(GOOD, {"alg": "HS256"}),
        jws(GOOD, {}),
        jws(GOOD, signature="AA"),
        jws([]),
        jws({**GOOD, "sub": ""}),
        jws({**GOOD, "sub": 7}),
        jws({key: GOOD[key] for key in ("sub", "iat")}),
        jws({**GOOD, "exp": NOW_MS / 1000}),
        jws({**GOOD, "exp": "soon"}),
        jws({**GOOD, "exp": True}),
        jws({**GOOD, "exp": float("inf")}),
        jws({**GOOD, "exp": 1e308}),
        jws({**GOOD, "exp": float("nan")}),
        jws({**GOOD, "iat": NOW_MS / 1000 + 1}),
        jws({**GOOD, "iat": GOOD["exp"]}),
        "e30.!!!.",
        base64.b64encode(b"[" * 100_000).decode() + ".e30.",
    ],
)
def test_unsigned_token_is_refused(token):
    with pytest.raises(InvalidToken):
        UnsecuredTokens()(token, NOW_MS)


@pytest.mark.parametrize("seconds", [10**400, 1e300])
def test_token_with_a_very_long_lifetime_is_accepted(seconds):
    assert UnsecuredTokens()(jws({**GOOD, "exp": seconds}), NOW_MS).principal_name == "alice"


def test_clock_skew_is_tolerated_within_the_limit():
    tokens = UnsecuredTokens(clock_skew_ms=5000)
    assert tokens(jws({**GOOD, "iat": NOW_MS / 1000 + 4}), NOW_MS)
    assert tokens(jws({"sub": "a", "exp": NOW_MS / 1000 - 4}), NOW_MS)
    with pytest.raises(InvalidToken):
        tokens(jws({"sub": "a", "exp": NOW_MS / 1000 - 5}), NOW_MS)


# JAAS


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
            {"user_alice": "secret"},
        ),
        ("M required a=\"1\" b=2\n  c='3' ;", {"a": "1", "b": "2", "c": "3"}),
        (r'M required a="it is; \"s=cret\" \\ 1";', {"a": 'it is; "s=cret" \\ 1'}),
        ("M optional;", {}),
    ],
)
def test_jaas_line_is_parsed(line, options):
    assert parse_jaas("key", line) == options


@pytest.mark.parametrize(
    "line",
    [
        "",
        "keep-private",
        'M user_a="keep-private";',
        'M required user_a="keep-private"',
        'M required user_a="keep-private;',
        'M required user_a="keep-private"; N required;',
    ],
)
def test_invalid_jaas_line_is_refused_without_quoting_it(line):
    with pytest.raises(ConfigError) as refused:
        parse_jaas("listener.name.l.plain.sasl.jaas.config", line)
    assert "listener.name.l.plain.sasl.jaas.config" in str(refused.value)
    assert "keep-private" not in str(refused.value)


def test_user_options_are_parsed():
    assert users_of({"username": "x", "user_alice": "1", "user_b-c@d": "2"}) == {"alice": "1", "b-c@d": "2"}
