"""The settings of OAUTHBEARER tokens.

Names are the Java client's (KIP-768, KIP-1139); librdkafka's names for the same settings are aliases.
"""

from collections.abc import Mapping
from typing import Final

from spark_eos.options.definitions import OptionDefinition

_Def: Final = OptionDefinition
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_CREDENTIALS: Final = "client_credentials"

OAUTH_SETTINGS: Final = (
    _Def(
        "sasl.oauthbearer.token.endpoint.url",
        "Where OAUTHBEARER tokens come from: the token endpoint of an identity provider, or a file with one token. "
        "The file is read for each connection.",
        values="`https://...` or `file:///path`",
    ),
    _Def(
        "sasl.oauthbearer.token.provider",
        "A Python function that returns tokens, called on the driver and in each of Spark's Python workers.",
        values="`module:function`",
    ),
    _Def(
        "sasl.oauthbearer.client.credentials.client.id",
        "The client's id at the identity provider.",
        default_note="`clientId` in `sasl.jaas.config`",
        values="any text",
    ),
    _Def(
        "sasl.oauthbearer.client.credentials.client.secret",
        "The client's secret.",
        default_note="`clientSecret` in `sasl.jaas.config`",
        values="any text",
    ),
    _Def(
        "sasl.oauthbearer.scope",
        "The scope that the client asks for.",
        default_note="`scope` in `sasl.jaas.config`",
        values="any text",
    ),
    _Def(
        "sasl.oauthbearer.extensions",
        "SASL extensions, such as Confluent Cloud's `logicalCluster` and `identityPoolId`.",
        default_note="`extension_*` in `sasl.jaas.config`",
        values="`name=value`, several with commas",
    ),
    _Def(
        "sasl.oauthbearer.header.urlencode",
        "Whether the id and the secret are URL-encoded in the request, as RFC 6749 says.",
        default="false",
        choices=("true", "false"),
    ),
    _Def("sasl.oauthbearer.jwt.retriever.class", "One of Kafka's own classes; `JwtBearer...` sets the grant type."),
    _Def(
        "sasl.oauthbearer.grant.type",
        "How the client asks for a token.",
        default=CLIENT_CREDENTIALS,
        choices=(CLIENT_CREDENTIALS, JWT_BEARER),
    ),
    _Def(
        "sasl.oauthbearer.method",
        "librdkafka's setting; both values mean the same here.",
        default="default",
        choices=("default", "oidc"),
    ),
    _Def(
        "sasl.oauthbearer.assertion.file",
        "A file with a signed assertion, sent instead of the secret. It is read for each request.",
        values="a path",
    ),
    _Def(
        "sasl.oauthbearer.assertion.private.key.file",
        "The key that signs assertions, which are sent instead of the secret. Needs the extra `oauth`.",
        values="the path of a PEM file",
    ),
    _Def("sasl.oauthbearer.assertion.private.key.pem", "The same key as text.", values="PEM text"),
    _Def("sasl.oauthbearer.assertion.private.key.passphrase", "The passphrase of that key.", values="any text"),
    _Def(
        "sasl.oauthbearer.assertion.algorithm",
        "The algorithm of the signature.",
        default="RS256",
        choices=("RS256", "ES256"),
    ),
    _Def("sasl.oauthbearer.assertion.claim.aud", "The claim `aud` of assertions.", values="any text"),
    _Def("sasl.oauthbearer.assertion.claim.iss", "The claim `iss` of assertions.", values="any text"),
    _Def("sasl.oauthbearer.assertion.claim.sub", "The claim `sub` of assertions.", values="any text"),
    _Def(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "How long an assertion is valid.",
        default="300",
        unit="s",
        minimum=0,
        maximum=86_400,
    ),
    _Def(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "How long before its creation an assertion is valid.",
        default="60",
        unit="s",
        minimum=0,
        maximum=3_600,
    ),
    _Def(
        "sasl.oauthbearer.assertion.claim.jti.include",
        "Whether an assertion has a unique id.",
        default="false",
        choices=("true", "false"),
    ),
    _Def(
        "sasl.oauthbearer.assertion.template.file",
        "A JSON file with more headers and claims: an object with `header` and `payload`.",
        values="a path",
    ),
    _Def(
        "https.ca.location",
        "A file with the authorities that sign the token endpoint's certificate.",
        default_note="`ssl.truststore.location` in `sasl.jaas.config`, or the system's authorities",
        values="a path",
    ),
    _Def("https.ca.pem", "The same authorities as text.", values="PEM text"),
    _Def(
        "sasl.login.connect.timeout.ms",
        "How long a connection to the token endpoint may take.",
        default="10000",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "sasl.login.read.timeout.ms",
        "How long the token endpoint may take to send more of its response.",
        default="10000",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "sasl.login.retry.backoff.ms",
        "The first wait before a failed request for a token is repeated.",
        default="100",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "sasl.login.retry.backoff.max.ms",
        "How long failed requests for a token are repeated.",
        default="10000",
        unit="ms",
        minimum=1,
    ),
    _Def(
        "sasl.login.refresh.window.factor",
        "The part of its lifetime after which a token is renewed.",
        default="0.8",
        values="`0.5` to `1.0`",
    ),
    _Def(
        "sasl.login.refresh.window.jitter",
        "The largest random part of the lifetime that is added to it.",
        default="0.05",
        values="`0.0` to `0.25`",
    ),
    _Def(
        "sasl.login.refresh.min.period.seconds",
        "How long a new token is used at least, if its lifetime allows it.",
        default="60",
        unit="s",
        minimum=0,
        maximum=900,
    ),
    _Def(
        "sasl.login.refresh.buffer.seconds",
        "How long before its expiration a token is renewed at least, if its lifetime allows it.",
        default="300",
        unit="s",
        minimum=0,
        maximum=3_600,
    ),
)

OAUTH_ALIASES: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.jwt.template.file": "sasl.oauthbearer.assertion.template.file",
}

# Names that Apache Kafka's clients do not have: librdkafka's, and this package's own.
NOT_OF_KAFKA: Final = frozenset(
    {
        "https.ca.location",
        "https.ca.pem",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.token.provider",
    }
)
