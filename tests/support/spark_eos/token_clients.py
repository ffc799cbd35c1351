"""Clients of a secured broker whose tokens come from a token endpoint, a signed assertion or a function."""

import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider
from tests.support.secured import jaas
from tests.support.spark_eos.security_clients import Credentials


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, own: Credentials) -> Iterator[Provider]:
    """Return a token endpoint that knows its clients and grants them a token that the broker accepts."""
    running.grants = own.token
    yield running
    running.answers = []


def by_endpoint(own: Credentials, provider: Provider, **settings: str) -> dict[str, str]:
    words = f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" extension_logicalCluster="lkc-1"'
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.jaas.config": jaas("OAUTHBEARER", words),
        "sasl.login.retry.backoff.max.ms": "100",
        "https.ca.pem": provider.authority.cert_pem.bytes().decode(),
    }
    return own.options("SECURE", "SASL_SSL", {**given, **settings})


def by_assertion(own: Credentials, provider: Provider) -> dict[str, str]:
    prefix = "sasl.oauthbearer.assertion"
    claims = {f"{prefix}.claim.iss": CLIENT_ID, f"{prefix}.private.key.pem": provider.signer.pem("key-passphrase")}
    words = jaas("OAUTHBEARER", f'clientId="{CLIENT_ID}"')
    locked = {f"{prefix}.private.key.passphrase": "key-passphrase"}
    return by_endpoint(own, provider, **claims, **locked, **{"sasl.jaas.config": words})


def by_function(own: Credentials, provider: Provider, source: str = "") -> dict[str, str]:
    """Write a module with a function that returns a token, where Python finds modules."""
    name = f"own_tokens_{next(_numbers)}"
    source = source or f"def get():\n    return {own.token!r}, None\n"
    (own.folder / f"{name}.py").write_text(source)
    return own.options(
        "SECURE", "SASL_SSL", {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": f"{name}:get"}
    )


_numbers = itertools.count()
KEY_PEM = "kafka.sasl.oauthbearer.assertion.private.key.pem"
TOKEN_WAYS: Mapping[str, Callable[[Credentials, Provider], dict[str, str]]] = {
    "token endpoint": by_endpoint,
    "signed assertion": by_assertion,
    "token function": by_function,
}
