"""Brokers of either kind whose OAUTHBEARER listener validates tokens with the key set of an identity provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.support.apache_kafka import JVM, apache_kafka, free_ports
from tests.support.oidc_provider import AT, AUDIENCE, ISSUER, Provider

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
SKEW_S = 5


@dataclass(frozen=True)
class OidcBroker:
    """The addresses of a running broker."""

    kind: str
    bootstrap_servers: str
    by_token: str


def _settings(provider: Provider, folder: Path) -> dict[str, str]:
    authority = folder / "provider.pem"
    authority.write_bytes(provider.authority.cert_pem.bytes())
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority}"'
    of_mechanism = "listener.name.token.oauthbearer.sasl"
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TOKEN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
        "sasl.oauthbearer.clock.skew.seconds": str(SKEW_S),
        f"{of_mechanism}.server.callback.handler.class": f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{of_mechanism}.jaas.config": f"{_PACKAGE}.OAuthBearerLoginModule required {trusted};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }


@contextmanager
def oidc_broker(kind: str, provider: Provider, folder: Path) -> Iterator[OidcBroker]:
    """Run a broker of this kind; raises `Unavailable` if Apache Kafka cannot run."""
    settings = _settings(provider, folder)
    if kind == "broker_core":
        settings["listeners"] = f"PLAINTEXT://{AT}:0,TOKEN://{AT}:0"
        with EmbeddedBroker(config=settings) as embedded:
            yield OidcBroker(kind, embedded.bootstrap("PLAINTEXT"), embedded.bootstrap("TOKEN"))
        return
    controller, plain, token = free_ports(3)
    (folder / "ports").write_text(f"{plain} {controller}")
    advertised = f"PLAINTEXT://{AT}:{plain},TOKEN://{AT}:{token}"
    settings["listeners"] = f"{advertised},CONTROLLER://{AT}:{controller}"
    settings["advertised.listeners"] = advertised
    settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    # A listener of Kafka's is a client, too: it has a token of its own before it starts.
    own = folder / "broker-token"
    own.write_text(provider.signer.token())
    settings["sasl.oauthbearer.token.endpoint.url"] = own.as_uri()
    settings["listener.name.token.oauthbearer.sasl.login.callback.handler.class"] = (
        f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url},{own.as_uri()}"
    with apache_kafka(settings, folder, jvm=(*JVM, allowed)):
        yield OidcBroker(kind, f"{AT}:{plain}", f"{AT}:{token}")
