"""The validator of signed tokens, without a connection."""

import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.security.sasl_jwt import SignedTokens, read_key_set
from broker_core.security.sasl_oauthbearer import InvalidToken
from broker_core.security.sasl_settings import SaslServices, sasl_settings
from tests.support.direct import CountingEntropy
from tests.support.oidc_provider import AUDIENCE, ISSUER, KEY_ID, Signer, decoded, encoded

NOW_S = 1_700_000_000
SIGNER = Signer()
KEYS = read_key_set(json.dumps(SIGNER.key_set()))
PREFIX = "listener.name.token.oauthbearer.sasl"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def keys(key_id):
    return tuple(key for key in KEYS if key_id in (None, key.key_id))


VALIDATOR = SignedTokens(keys, ISSUER, frozenset({"other", AUDIENCE}), clock_skew_ms=30_000)


def token(**changes):
    return SIGNER.token(**{"iat": NOW_S, "exp": NOW_S + 60, **changes})


def refused(text, given, validator=VALIDATOR):
    with pytest.raises(InvalidToken, match=text):
        validator(given, 1000 * NOW_S)


def test_valid_token_is_accepted():
    found = VALIDATOR(token(), 1000 * NOW_S)
    assert (found.principal_name, found.expires_ms) == ("alice", 1000 * (NOW_S + 60))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW_S - 29},
        {"nbf": NOW_S + 30},
        {"aud": ["x", AUDIENCE]},
        {"iat": NOW_S + 3600},
        {"scope": ["a", "b"]},
        {"header": {"kid": None}},
    ],
)
def test_token_within_the_limits_is_accepted(changes):
    assert VALIDATOR(token(**changes), 1000 * NOW_S)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"exp": NOW_S - 30}, "has expired"),
        ({"exp": None}, "no expiration time"),
        ({"exp": "soon"}, "not a number"),
        ({"iat": None}, "no time of issue"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [5, None]}, "audience"),
        ({"sub": None}, "sub is missing"),
        ({"sub": " "}, "sub is missing"),
        ({"sub": ["alice"]}, "sub is missing"),
        ({"scope": 5}, "scope is neither"),
        ({"header": {"kid": "unknown"}}, "signature is not by a key"),
        ({"header": {"alg": "none"}}, "algorithm"),
        ({"header": {"alg": "HS256"}}, "algorithm"),
        ({"header": {"alg": ["RS256"]}}, "algorithm"),
        ({"header": {"alg": "RS512"}}, "signature is not by a key"),
        ({"header": {"crit": ["exp"]}}, "critical"),
    ],
)
def test_token_outside_the_limits_is_refused(changes, text):
    refused(text, token(**changes))


def test_forged_tokens_are_refused():
    header, claims, signature = token().split(".")
    refused("three sections", f"{header}.{claims}")
    refused("signature is not by a key", f"{header}.{claims}.")
    refused("not base64", f"{header}.{claims}.*")
    refused("signature is not by a key", Signer(KEY_ID).token(iat=NOW_S, exp=NOW_S + 60))
    other = json.loads(decoded(claims)) | {"sub": "mallory"}
    refused("signature is not by a key", f"{header}.{encoded(json.dumps(other).encode())}.{signature}")
    numeric = int.from_bytes(decoded(signature), "big")
    beyond = (numeric + KEYS[0].modulus).to_bytes(257, "big")
    refused("signature is not by a key", f"{header}.{claims}.{encoded(beyond)}")
    refused("signature is not by a key", f"{header}.{claims}.{encoded(bytes(256))}")
    # The public key as the secret of a symmetric algorithm.
    symmetric = encoded(json.dumps({"alg": "HS256", "kid": KEY_ID}).encode())
    signed = f"{symmetric}.{claims}".encode()
    mac = hmac.new(json.dumps(SIGNER.key_set()).encode(), signed, hashlib.sha256).digest()
    refused("algorithm", f"{signed.decode()}.{encoded(mac)}")


@pytest.mark.parametrize(("algorithm", "hashed"), [("RS384", hashes.SHA384()), ("RS512", hashes.SHA512())])
def test_key_without_an_algorithm_verifies_longer_hashes(algorithm, hashed):
    [entry] = SIGNER.key_set()["keys"]
    del entry["alg"]
    any_hash = read_key_set(json.dumps({"keys": [entry]}))
    header = encoded(json.dumps({"alg": algorithm}).encode())
    signed = f"{header}.{token().split('.')[1]}"
    signature = encoded(SIGNER.key.sign(signed.encode(), padding.PKCS1v15(), hashed))
    validator = SignedTokens(lambda key_id: any_hash, ISSUER, frozenset({AUDIENCE}))
    assert validator(f"{signed}.{signature}", 1000 * NOW_S).principal_name == "alice"


def test_claims_may_have_other_names():
    validator = SignedTokens(keys, principal_claim="client_id", scope_claim="scp")
    given = token(client_id="job", scp="all", iss="any", aud=None, sub=None)
    assert validator(given, 1000 * NOW_S).principal_name == "job"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": []}',
        '{"keys": [{}]}',
        '{"keys": [{"kty": "EC"}]}',
        '{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]}',
        '{"keys": [{"kty": "RSA", "n": "*", "e": "AQAB"}]}',
        "[" * 100_000,
    ],
)
def test_malformed_key_set_is_refused(text):
    with pytest.raises(ConfigError, match="key set"):
        read_key_set(text)


def test_encryption_keys_are_ignored():
    [entry] = SIGNER.key_set()["keys"]
    document = {"keys": [entry, entry | {"use": "enc"}, entry | {"alg": "ES256"}]}
    assert read_key_set(json.dumps(document)) == KEYS


# Settings


def settings_of(open_key_set=lambda place: keys, **settings):
    given = {key.replace("_", "."): text for key, text in settings.items()}
    config = BrokerConfig().override({"sasl.enabled.mechanisms": "OAUTHBEARER", **given})
    services = SaslServices(lambda *_: None, CountingEntropy(), open_key_set=open_key_set)
    return sasl_settings(config, "TOKEN", services)


COMPLETE = {
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": f"other, {AUDIENCE}",
    f"{PREFIX}.server.callback.handler.class": HANDLER,
    f"{PREFIX}.jaas.config": 'OAuthBearerLoginModule required ssl.truststore.location="/ca.pem";',
}


def test_settings_choose_the_validator():
    places = []

    def opened(place):
        places.append(place)
        return keys

    mechanism = settings_of(opened, **COMPLETE).mechanisms["OAUTHBEARER"]()
    assert (places[0].url, places[0].ca_path) == ("https://issuer.example/keys", "/ca.pem")
    message = f"n,,\x01auth=Bearer {token()}\x01\x01".encode()
    assert (mechanism.evaluate(message, 1000 * NOW_S), mechanism.user_name) == (b"", "alice")
    refusal = f"n,,\x01auth=Bearer {token(aud='another')}\x01\x01".encode()
    assert settings_of(**COMPLETE).mechanisms["OAUTHBEARER"]().evaluate(refusal, 1000 * NOW_S) == (
        b'{"status":"invalid_token"}'
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sasl.oauthbearer.expected.issuer": ""}, "expected.issuer, or .*allow.unverified.issuer"),
        ({"sasl.oauthbearer.expected.audience": " , "}, "expected.audience, or .*allow.unverified.audience"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "needs sasl.oauthbearer.jwks.endpoint.url"),
        ({f"{PREFIX}.server.callback.handler.class": "com.example.Mine"}, "callback handler is not one of"),
    ],
)
def test_incomplete_settings_are_refused(change, text):
    with pytest.raises(ConfigError, match=text):
        settings_of(**{**COMPLETE, **change})


def test_unverified_issuer_and_audience_must_be_allowed():
    allowed = {f"sasl.oauthbearer.allow.unverified.{what}": "true" for what in ("issuer", "audience")}
    assert settings_of(**{"sasl.oauthbearer.jwks.endpoint.url": "file:///keys", **allowed})
    with pytest.raises(ConfigError, match="cannot be read here"):
        settings_of(None, **COMPLETE)
