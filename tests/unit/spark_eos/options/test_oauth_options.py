"""Read the options of OAUTHBEARER tokens, by the names of Java and of librdkafka."""

import pickle

import pytest

from spark_eos.errors import OptionError
from spark_eos.options.client import ClientOptions, client_options
from spark_eos.options.key_stores import OF_JAAS, KeyStores
from spark_eos.options.oauth import JWT_BEARER, AssertionOptions, EndpointOptions, OAuthOptions, RefreshOptions

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule required"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
URL = "https://login.example/token"
OF_LOGIN_MODULE = KeyStores(named=OF_JAAS)
SECRET = "tell-no-one"
CREDENTIALS = {"sasl.oauthbearer.client.id": "job", "sasl.oauthbearer.client.secret": SECRET}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": URL, **CREDENTIALS}


def parsed(settings: dict[str, str]) -> ClientOptions:
    given = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **settings}
    return client_options({f"kafka.{name}": value for name, value in given.items()})


def endpoint(settings: dict[str, str]) -> EndpointOptions:
    oauth = parsed(settings).sasl_oauth
    assert oauth is not None
    assert oauth.endpoint is not None
    return oauth.endpoint


def test_three_ways_to_write_credentials_are_the_same() -> None:
    jaas = f'{MODULE} clientId="job" clientSecret="{SECRET}" scope="all" extension_logicalCluster="lkc-1";'
    extensions = {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1"}
    prefix = "sasl.oauthbearer.client.credentials.client"
    ways = [
        {"sasl.oauthbearer.token.endpoint.url": URL, "sasl.jaas.config": jaas},
        {**ENDPOINT, "sasl.oauthbearer.scope": "all", "sasl.oauthbearer.method": "OIDC", **extensions},
        {
            "sasl.oauthbearer.token.endpoint.url": URL,
            f"{prefix}.id": "job",
            f"{prefix}.secret": SECRET,
            "sasl.oauthbearer.scope": "all",
            "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.ClientCredentialsJwtRetriever",
            "sasl.oauthbearer.jwt.validator.class": f"{PACKAGE}.ClientJwtValidator",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            **extensions,
        },
    ]
    first, *others = map(parsed, ways)
    assert others == [first, first]
    endpoint = EndpointOptions(URL, "job", SECRET, "all", stores=OF_LOGIN_MODULE)
    assert first.sasl_oauth == OAuthOptions(endpoint, extensions=(("logicalCluster", "lkc-1"),))
    assert SECRET not in repr(first)
    assert pickle.loads(pickle.dumps(first)) == first


def test_times_and_certificates_are_read() -> None:
    given = {
        **ENDPOINT,
        "sasl.login.connect.timeout.ms": "1",
        "sasl.login.read.timeout.ms": "2",
        "sasl.login.retry.backoff.ms": "3",
        "sasl.login.retry.backoff.max.ms": "4",
        "sasl.login.refresh.window.factor": "0.6",
        "sasl.login.refresh.window.jitter": "0",
        "sasl.login.refresh.min.period.seconds": "5",
        "sasl.login.refresh.buffer.seconds": "6",
        "sasl.oauthbearer.header.urlencode": "true",
        "https.ca.location": "/ca.pem",
    }
    found = endpoint(given)
    times = (found.connect_timeout_ms, found.read_timeout_ms, found.retry_backoff_ms, found.retry_max_ms)
    assert (times, found.encodes_header, found.stores.trusted_path) == ((1, 2, 3, 4), True, "/ca.pem")
    oauth = parsed(given).sasl_oauth
    assert oauth is not None
    assert oauth.refresh == RefreshOptions(0.6, 0.0, 5, 6)
    jaas = f'{MODULE} ssl.truststore.location="/jaas.pem";'
    assert endpoint({**ENDPOINT, "sasl.jaas.config": jaas}).stores.trusted_path == "/jaas.pem"
    assert endpoint({**ENDPOINT, "https.ca.location": "probe"}).stores.trusted_path is None


def test_stores_of_the_endpoint_are_those_of_the_login_module() -> None:
    words = (
        'ssl.truststore.location="/trust.jks" ssl.truststore.password="of-trust" '
        'ssl.keystore.location="/own.p12" ssl.keystore.password="of-own" ssl.key.password="of-key"'
    )
    given = {**ENDPOINT, "sasl.jaas.config": f"{MODULE} {words};", "ssl.truststore.location": "/of-brokers.pem"}
    found = endpoint(given).stores
    assert found == KeyStores(
        "/trust.jks",
        trusted_password="of-trust",
        certificate_path="/own.p12",
        key_path="/own.p12",
        keystore_password="of-own",
        key_password="of-key",
        named=OF_JAAS,
    )
    assert "of-" not in repr(found)
    assert endpoint({**given, "https.ca.location": "/own.pem"}).stores.trusted_path == "/own.pem"


def test_assertions_are_read() -> None:
    prefix = "sasl.oauthbearer.assertion."
    given = {
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.client.id": "job",
        f"{prefix}private.key.file": "/key.pem",
        f"{prefix}private.key.passphrase": SECRET,
        f"{prefix}algorithm": "es256",
        f"{prefix}claim.iss": "job",
        f"{prefix}claim.aud": "https://login.example",
        f"{prefix}claim.exp.seconds": "60",
        f"{prefix}claim.jti.include": "true",
        f"{prefix}jwt.template.file": "/template.json",
    }
    expected = AssertionOptions(
        key_path="/key.pem",
        key_passphrase=SECRET,
        algorithm="ES256",
        claims=(("iss", "job"), ("aud", "https://login.example")),
        lifetime_s=60,
        has_id=True,
        template_path="/template.json",
    )
    assert endpoint(given) == EndpointOptions(URL, "job", assertion=expected, stores=OF_LOGIN_MODULE)
    del given["sasl.oauthbearer.client.id"]
    for more in (
        {"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.JwtBearerJwtRetriever"},
        {"sasl.oauthbearer.grant.type": JWT_BEARER},
    ):
        assert endpoint({**given, **more}).grant_type == JWT_BEARER


def test_function_is_a_source_of_tokens() -> None:
    options = parsed({"sasl.oauthbearer.token.provider": "own.tokens:Source.get", "sasl.oauthbearer.extensions": "a=b"})
    assert options.sasl_oauth == OAuthOptions(function="own.tokens:Source.get", extensions=(("a", "b"),))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "needs a token"),
        (CREDENTIALS, "client.credentials.client.id needs a token endpoint"),
        ({"sasl.jaas.config": f'{MODULE} clientId="{SECRET}";'}, "clientId in .* needs a token endpoint"),
        ({"sasl.oauthbearer.token.endpoint.url": URL}, "needs .*client.credentials.client.id"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "ftp://h/x"}, "is not an https:// URL"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": SECRET}, "is not an https:// URL"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "https://"}, "is not an https:// URL"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "https://h:x/"}, "is not an https:// URL"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "https://h/a b"}, "is not an https:// URL"),
        ({**ENDPOINT, "sasl.oauthbearer.token.endpoint.url": f"https://a:{SECRET}@h/"}, "contains a user name"),
        ({**ENDPOINT, "sasl.oauthbearer.token.provider": "a:b"}, "are both set"),
        ({"sasl.oauthbearer.token.provider": f"{SECRET}"}, "not of the form module:function"),
        ({"sasl.oauthbearer.token.provider": "a:b()"}, "not of the form module:function"),
        ({**ENDPOINT, "sasl.oauthbearer.grant.type": JWT_BEARER}, "jwt-bearer needs an assertion"),
        ({**ENDPOINT, "sasl.oauthbearer.grant.type": "password"}, "'password'. Use client_credentials or"),
        ({**ENDPOINT, "sasl.oauthbearer.assertion.claim.iss": "x"}, "needs a key that signs assertions"),
        ({**ENDPOINT, "sasl.oauthbearer.method": "other"}, "'other'. Use default or oidc"),
        ({**ENDPOINT, "sasl.oauthbearer.jwt.retriever.class": "com.example.Mine"}, "Java classes are not supported"),
        ({"sasl.login.callback.handler.class": "com.example.Mine"}, "Java classes are not supported"),
        ({"sasl.jaas.config": f"{PLAIN_MODULE};"}, "Use OAuthBearerLoginModule"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{MODULE};"}, "Use PlainLoginModule or Scram"),
        ({"sasl.oauthbearer.config": "principal=x"}, "not supported"),
        ({**ENDPOINT, "sasl.oauthbearer.extensions": "auth=x"}, "cannot have the name 'auth'"),
        ({**ENDPOINT, "sasl.oauthbearer.extensions": "a-b=x"}, "cannot have the name 'a-b'"),
        ({**ENDPOINT, "sasl.oauthbearer.extensions": "logicalCluster="}, "has an invalid value"),
        ({**ENDPOINT, "sasl.login.refresh.window.factor": "nan"}, "Give a number from 0.5 to 1.0"),
        ({**ENDPOINT, "sasl.login.refresh.buffer.seconds": "3601"}, "Give a whole number from 0 to 3600"),
        ({**ENDPOINT, "sasl.login.connect.timeout.ms": "0"}, "Give a whole number of at least 1"),
        (
            {**ENDPOINT, "sasl.jaas.config": f'{MODULE} ssl.truststore.location="a" ssl.truststore.type="BCFKS";'},
            "ssl.truststore.type in kafka.sasl.jaas.config is 'BCFKS'",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_without_secrets(settings: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as raised:
        parsed(settings)
    assert SECRET not in str(raised.value)
