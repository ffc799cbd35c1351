"""OAUTHBEARER with an identity provider: the client, its errors, and the validators of Apache Kafka and broker_core."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from spark_eos.admin.command import ExitCode, main
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import AuthenticationError, EosKafkaError, UnreachableError
from spark_eos.options.client import client_options
from spark_eos.options.oauth import JWT_BEARER
from tests.support.oidc_brokers import SKEW_S, OidcBroker, oidc_broker
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, LIFETIME_S, Provider, Signer, oidc_provider, pem_of
from tests.support.spark_eos.sink_world import World

ASSERTION = "sasl.oauthbearer.assertion"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def running(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, OidcBroker]]:
    with oidc_provider() as provider:
        with oidc_broker(broker_kind, provider, tmp_path_factory.mktemp("oidc")) as broker:
            yield provider, broker


@pytest.fixture
def provider(running: tuple[Provider, OidcBroker]) -> Iterator[Provider]:
    provider, _ = running
    provider.requests.clear()
    yield provider
    provider.claims, provider.answers, provider.client_key = {}, [], provider.signer.key.public_key()


@pytest.fixture
def broker(running: tuple[Provider, OidcBroker]) -> OidcBroker:
    return running[1]


@pytest.fixture
def authority(provider: Provider, tmp_path: Path) -> str:
    path = tmp_path / "provider.pem"
    path.write_bytes(provider.authority.cert_pem.bytes())
    return str(path)


def reaching(broker: OidcBroker, **settings: str) -> dict[str, str]:
    given = {
        "bootstrap.servers": broker.by_token,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "default.api.timeout.ms": "20000",
        **settings,
    }
    return {f"kafka.{name}": value for name, value in given.items()}


def java_names(broker: OidcBroker, provider: Provider, authority: str) -> dict[str, str]:
    jaas = (
        f'{MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="all" '
        f'ssl.truststore.type="PEM" ssl.truststore.location="{authority}" '
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";'
    )
    settings = {"sasl.oauthbearer.token.endpoint.url": provider.token_url, "sasl.jaas.config": jaas}
    return reaching(broker, **settings)


def newer_java_names(broker: OidcBroker, provider: Provider, authority: str) -> dict[str, str]:
    prefix = "sasl.oauthbearer.client.credentials.client."
    settings = {
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        f"{prefix}id": CLIENT_ID,
        f"{prefix}secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": "all",
        "sasl.jaas.config": f'{MODULE} required ssl.truststore.location="{authority}";',
        "sasl.login.callback.handler.class": MODULE.replace("LoginModule", "LoginCallbackHandler"),
    }
    return reaching(broker, **settings)


def librdkafka_names(broker: OidcBroker, provider: Provider, authority: str) -> dict[str, str]:
    settings = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": "all",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        "https.ca.location": authority,
    }
    return reaching(broker, **settings)


WAYS = {"java": java_names, "newer java": newer_java_names, "librdkafka": librdkafka_names}


def commits_a_micro_batch(broker: OidcBroker, given: dict[str, str]) -> None:
    with KafkaClient(client_options(given)) as client:
        world = World(broker.bootstrap_servers, client)
        world.committer("run1").commit([world.prepare("run1")], 0)
        assert world.visible() == ["row of 0"]


@pytest.mark.parametrize("way", WAYS)
def test_micro_batch_is_committed_with_a_token_of_the_endpoint(
    provider: Provider, broker: OidcBroker, authority: str, way: str
) -> None:
    commits_a_micro_batch(broker, WAYS[way](broker, provider, authority))
    assert provider.requests == [{"grant_type": "client_credentials", "scope": "all"}], "one token for all connections"


# What takes the place of the secret (KIP-1139): the settings, and what the endpoint then receives.
SIGNED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "RS256": (
        {"sasl.oauthbearer.client.credentials.client.id": CLIENT_ID},
        {"grant_type": "client_credentials", "client_id": CLIENT_ID},
    ),
    "ES256": (
        {"sasl.oauthbearer.client.credentials.client.id": CLIENT_ID, f"{ASSERTION}.algorithm": "ES256"},
        {"grant_type": "client_credentials", "client_id": CLIENT_ID},
    ),
    "the grant itself": (
        {"sasl.oauthbearer.jwt.retriever.class": MODULE.replace("OAuthBearerLoginModule", "JwtBearerJwtRetriever")},
        {"grant_type": JWT_BEARER},
    ),
}


@pytest.mark.parametrize("way", SIGNED)
def test_broker_accepts_a_token_for_a_signed_assertion(
    provider: Provider, broker: OidcBroker, authority: str, tmp_path: Path, way: str
) -> None:
    settings, sent = SIGNED[way]
    key = tmp_path / "key.pem"
    key.write_text(provider.signer.pem("of-the-key"))
    if way == "ES256":
        own = ec.generate_private_key(ec.SECP256R1())
        provider.client_key = own.public_key()
        key.write_text(pem_of(own, "of-the-key"))
    given = reaching(
        broker,
        **settings,
        **{
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.scope": "all",
            f"{ASSERTION}.private.key.file": str(key),
            f"{ASSERTION}.private.key.passphrase": "of-the-key",
            f"{ASSERTION}.claim.iss": CLIENT_ID,
            "https.ca.location": authority,
        },
    )
    if way == "RS256":
        commits_a_micro_batch(broker, given)
    else:
        with KafkaClient(client_options(given)) as client:
            client.connect()
    [request] = provider.requests
    assert request.items() >= {"scope": "all", **sent}.items()


def test_micro_batch_is_committed_with_a_token_of_a_function(
    provider: Provider, broker: OidcBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"tokens_of_{broker.kind}"
    result = (provider.signer.token(), None, None, {"logicalCluster": "lkc-1"})
    (tmp_path / f"{name}.py").write_text(f"def get():\n    return {result!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    commits_a_micro_batch(broker, reaching(broker, **{"sasl.oauthbearer.token.provider": f"{name}:get"}))
    assert provider.requests == []


def test_refused_token_of_a_function_is_described_and_not_shown(
    provider: Provider, broker: OidcBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"bad_tokens_of_{broker.kind}"
    provider.tokens.append(provider.signer.token(aud="another"))
    (tmp_path / f"{name}.py").write_text(f"def get():\n    return {provider.tokens[-1]!r}, None\n")
    monkeypatch.syspath_prepend(tmp_path)
    refuses(reaching(broker, **{"sasl.oauthbearer.token.provider": f"{name}:get"}), "'another'", provider)


def test_command_understands_the_same_settings(
    provider: Provider, broker: OidcBroker, authority: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "client.properties"
    given = java_names(broker, provider, authority)
    config.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in given.items()))
    words = ["--bootstrap-server", broker.by_token, "--command-config", str(config)]
    assert main(["transactions", "list", *words, "--output", "json"]) == ExitCode.DONE, capsys.readouterr().err


# The endpoint gives what the broker refuses: the message describes the token.


def from_now(claims: dict[str, Any]) -> dict[str, Any]:
    """Return claims with times, which are given in seconds from now."""
    now_s = int(time.time())
    return {name: now_s + value if isinstance(value, int) else value for name, value in claims.items()}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong audience": ({"aud": "another"}, "'another'"),
    "no audience": ({"aud": None}, "iss 'https://issuer.example', and it expires in"),
    "wrong issuer": ({"iss": "https://other.example"}, "iss 'https://other.example'"),
    "expired": ({"iat": -7200, "exp": -3600}, r"expired 36\d\d s ago by this machine's clock"),
    "beyond the skew": ({"exp": -SKEW_S - 5}, "expired"),
    "not valid yet": ({"nbf": 3600}, "expires in"),
    "no subject": ({"sub": None}, "expires in"),
    "no expiration": ({"exp": None}, "iss"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_token_is_described_and_not_shown(
    provider: Provider, broker: OidcBroker, authority: str, what: str
) -> None:
    claims, text = REFUSED[what]
    provider.claims = from_now(claims)
    given = librdkafka_names(broker, provider, authority) | {"kafka.sasl.oauthbearer.scope": what}
    refuses(given, text, provider)
    provider.claims = {}
    with KafkaClient(client_options(given)) as client:
        client.connect()
    assert len(provider.requests) >= 2, "a refused token was kept"


def refuses(given: dict[str, str], text: str, provider: Provider) -> None:
    """Be refused; kafka-python drops an answer that comes with the end of a connection, so more than once perhaps."""
    with KafkaClient(client_options(given)) as client, pytest.raises(EosKafkaError) as raised:
        client.connect()
    shown = f"{raised.value} {raised.value.__cause__!r} {raised.value.__context__!r}"
    assert not any(token.split(".")[1] in shown for token in provider.tokens)
    if isinstance(raised.value, UnreachableError):
        assert "socket disconnected" in str(raised.value)
        return
    assert isinstance(raised.value, AuthenticationError)
    assert "The broker rejected the credentials" in str(raised.value)
    assert re.search(text, str(raised.value)), str(raised.value)


@pytest.mark.parametrize("claims", [{"exp": 600, "iat": 3}, {"aud": ["x", "kafka"]}, {"nbf": 2}])
def test_clock_skew_and_several_audiences_are_accepted(
    provider: Provider, broker: OidcBroker, authority: str, claims: dict[str, object]
) -> None:
    provider.claims = from_now(claims)
    given = librdkafka_names(broker, provider, authority) | {"kafka.sasl.oauthbearer.scope": str(sorted(claims))}
    with KafkaClient(client_options(given)) as client:
        client.connect()


def test_token_of_another_key_is_refused_until_the_key_set_has_it(
    provider: Provider, broker: OidcBroker, authority: str
) -> None:
    given = librdkafka_names(broker, provider, authority) | {"kafka.sasl.oauthbearer.scope": "rotated"}
    before = provider.signer
    try:
        stranger = Signer(before.key_id)
        provider.signer, own_keys = stranger, before.key_set
        provider.signer.key_set = own_keys  # type: ignore[method-assign]
        refuses(given, "iss", provider)
    finally:
        provider.signer = before
    with KafkaClient(client_options(given)) as client:
        client.connect()


def test_session_ends_with_its_token_and_is_renewed_by_the_next(
    provider: Provider, broker: OidcBroker, authority: str
) -> None:
    lifetime_s = 2
    provider.expires_in = lifetime_s
    given = librdkafka_names(broker, provider, authority) | {"kafka.sasl.oauthbearer.scope": "short"}
    end = time.monotonic() + 2.5 * lifetime_s
    try:
        with KafkaClient(client_options(given)) as client:
            while time.monotonic() < end:
                provider.claims = {"exp": int(time.time()) + lifetime_s + 1}
                client.metadata([])
                client.transport.pause(0.05)
    finally:
        provider.expires_in = LIFETIME_S
    assert len(provider.requests) > 2, "the token was renewed"


def test_endpoint_that_does_not_respond_is_reported_within_the_timeout(
    provider: Provider, broker: OidcBroker, authority: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = librdkafka_names(broker, provider, authority)
    given |= {"kafka.sasl.oauthbearer.scope": "slow", "kafka.default.api.timeout.ms": "1000"}
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in given.items()))
    provider.goes_on.clear()
    began = time.monotonic()
    try:
        with KafkaClient(client_options(given)) as client, pytest.raises(AuthenticationError) as raised:
            client.connect()
        assert time.monotonic() - began < 5
        assert f"The token endpoint {provider.token_url} returned no token in time" in str(raised.value)
        words = ["--bootstrap-server", broker.by_token, "--command-config", str(config)]
        assert main(["transactions", "list", *words]) == ExitCode.FAILED
        assert "returned no token in time" in capsys.readouterr().err
    finally:
        provider.goes_on.set()
