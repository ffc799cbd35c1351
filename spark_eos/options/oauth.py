"""The `kafka.*` options that say where a client's OAUTHBEARER tokens come from, parsed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from spark_eos.errors import OptionError
from spark_eos.options.catalog import DECLARED, declared, declared_values, setting_value
from spark_eos.options.key_stores import NO_STORES, OF_JAAS, KeyStores, key_stores

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_CREDENTIALS: Final = "client_credentials"
_SETTINGS: Final = [
    each for each in DECLARED.values() if each.name.startswith(("https.ca.", "sasl.login.", "sasl.oauthbearer."))
]
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_JWT_BEARER_CLASS: Final = f"{_PACKAGE}JwtBearerJwtRetriever"
_RETRIEVERS: Final = tuple(
    f"{_PACKAGE}{kind}JwtRetriever" for kind in ("Default", "ClientCredentials", "JwtBearer", "File")
)
_TOKEN_SOURCES: Final = (
    "Set kafka.sasl.oauthbearer.token.endpoint.url to the https URL of your identity provider, with a client id and a "
    "secret, or to file:///path/to/token; or set kafka.sasl.oauthbearer.token.provider=module:function"
)
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
# As in RFC 7628; Kafka's brokers refuse other names and values.
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_JAAS_EXTENSION: Final = "extension_"


@dataclass(frozen=True, slots=True)
class AssertionOptions:
    """A signed assertion (RFC 7523): a file with one, or a key and the claims to sign."""

    file: str | None = None
    key_path: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_passphrase: str | None = field(default=None, repr=False)
    algorithm: str = declared("sasl.oauthbearer.assertion.algorithm")
    claims: tuple[tuple[str, str], ...] = ()
    lifetime_s: int = declared("sasl.oauthbearer.assertion.claim.exp.seconds")
    not_before_s: int = declared("sasl.oauthbearer.assertion.claim.nbf.seconds")
    has_id: bool = declared("sasl.oauthbearer.assertion.claim.jti.include")
    template_path: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """When a token is renewed, as in the Java client."""

    window_factor: float = declared("sasl.login.refresh.window.factor")
    window_jitter: float = declared("sasl.login.refresh.window.jitter")
    min_period_s: int = declared("sasl.login.refresh.min.period.seconds")
    buffer_s: int = declared("sasl.login.refresh.buffer.seconds")


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The token endpoint of an identity provider, and the client's credentials there."""

    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    grant_type: str = CLIENT_CREDENTIALS
    assertion: AssertionOptions | None = None
    encodes_header: bool = declared("sasl.oauthbearer.header.urlencode")
    stores: KeyStores = NO_STORES
    connect_timeout_ms: int = declared("sasl.login.connect.timeout.ms")
    read_timeout_ms: int = declared("sasl.login.read.timeout.ms")
    retry_backoff_ms: int = declared("sasl.login.retry.backoff.ms")
    retry_max_ms: int = declared("sasl.login.retry.backoff.max.ms")


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Where tokens come from: an endpoint, a function, a file, or the subject of an unsigned one; and SASL extensions.

    Hashable, so equal options share their token.
    """

    endpoint: EndpointOptions | None = None
    function: str | None = None
    token_path: str | None = None
    unsigned_subject: str | None = None
    refresh: RefreshOptions = RefreshOptions()
    extensions: tuple[tuple[str, str], ...] = ()


def oauth_options(settings: Mapping[str, str], jaas: Mapping[str, str]) -> OAuthOptions | None:
    url = settings.get("sasl.oauthbearer.token.endpoint.url")
    function = settings.get("sasl.oauthbearer.token.provider")
    extensions = _extensions(settings, jaas)
    if function is not None:
        if url is not None:
            raise OptionError(
                "kafka.sasl.oauthbearer.token.provider and kafka.sasl.oauthbearer.token.endpoint.url are both set",
                remedy="Keep one of the two",
            )
        if _FUNCTION.fullmatch(function.strip()) is None:
            raise OptionError(
                "kafka.sasl.oauthbearer.token.provider is not of the form module:function",
                remedy="Name a function of a module that the driver and every executor can import",
            )
        return OAuthOptions(function=function.strip(), refresh=_refresh(settings), extensions=extensions)
    if url is None:
        _refuse_without_url(settings, jaas)
        subject = jaas.get("unsecuredLoginStringClaim_sub")
        return None if subject is None else OAuthOptions(unsigned_subject=subject, extensions=extensions)
    path = _path(url)
    if path is not None:
        return OAuthOptions(token_path=path, extensions=extensions)
    endpoint = _endpoint(url, settings, jaas)
    return OAuthOptions(endpoint=endpoint, refresh=_refresh(settings), extensions=extensions)


def check_values(settings: Mapping[str, str]) -> None:
    for each in _SETTINGS:
        if each.name in settings and (each.choices or each.is_whole):
            setting_value(settings, each.name)


def no_token(protocol: str) -> OptionError:
    return OptionError(f"{protocol} with OAUTHBEARER needs a token", remedy=_TOKEN_SOURCES)


def _refuse_without_url(settings: Mapping[str, str], jaas: Mapping[str, str]) -> None:
    named = [name for name in settings if name.startswith("sasl.oauthbearer.client.credentials.")]
    if named or "clientId" in jaas:
        raise OptionError(
            f"{f'kafka.{named[0]}' if named else 'clientId in kafka.sasl.jaas.config'} needs a token endpoint",
            remedy="Set kafka.sasl.oauthbearer.token.endpoint.url to the https URL of your identity provider",
        )


def _path(url: str) -> str | None:
    """Return the path of a file URL, None for an endpoint. The URL is never shown: it can contain a password."""
    try:
        parts = urlsplit(url.strip())
        scheme, host, _ = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        raise _bad_url() from None
    if scheme == "file" and parts.path and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if scheme not in ("https", "http") or not host or not url.strip().isprintable() or " " in url.strip():
        raise _bad_url()
    if "@" in parts.netloc or parts.fragment:
        raise OptionError(
            "kafka.sasl.oauthbearer.token.endpoint.url contains a user name, a password or a fragment",
            remedy="Set kafka.sasl.oauthbearer.client.credentials.client.id and .client.secret instead",
        )
    return None


def _bad_url() -> OptionError:
    return OptionError(
        "kafka.sasl.oauthbearer.token.endpoint.url is not an https:// URL and not a file:///path URL",
        remedy=_TOKEN_SOURCES,
    )


def _endpoint(url: str, settings: Mapping[str, str], jaas: Mapping[str, str]) -> EndpointOptions:
    client_id = settings.get("sasl.oauthbearer.client.credentials.client.id", jaas.get("clientId"))
    secret = settings.get("sasl.oauthbearer.client.credentials.client.secret", jaas.get("clientSecret"))
    grant_type = _grant_type(settings)
    assertion = _assertion(settings)
    if grant_type == JWT_BEARER:
        if assertion is None:
            raise OptionError(
                "The grant type jwt-bearer needs an assertion",
                remedy="Set kafka.sasl.oauthbearer.assertion.private.key.file or kafka.sasl.oauthbearer.assertion.file",
            )
    elif client_id is None or (assertion is None and secret is None):
        missing = "client.secret" if client_id is not None else "client.id"
        raise OptionError(
            f"The token endpoint needs kafka.sasl.oauthbearer.client.credentials.{missing}",
            remedy='Set it, or clientId="..." and clientSecret="..." in kafka.sasl.jaas.config',
        )
    return EndpointOptions(
        url=url.strip(),
        client_id=client_id,
        client_secret=secret,
        scope=settings.get("sasl.oauthbearer.scope", jaas.get("scope")),
        grant_type=grant_type,
        assertion=assertion,
        **declared_values(EndpointOptions, settings),
        stores=_stores(settings, jaas),
    )


def _grant_type(settings: Mapping[str, str]) -> str:
    retriever = settings.get("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS[0]).strip()
    if retriever not in _RETRIEVERS:
        raise OptionError(
            f"Kafka option 'sasl.oauthbearer.jwt.retriever.class' cannot be {retriever!r}: Java classes are not "
            "supported",
            remedy="Remove it, and use kafka.sasl.oauthbearer.token.provider=module:function for tokens of your own",
        )
    name = "sasl.oauthbearer.grant.type"
    default = JWT_BEARER if retriever == _JWT_BEARER_CLASS else CLIENT_CREDENTIALS
    return str(setting_value({name: default, **settings}, name))


def _assertion(settings: Mapping[str, str]) -> AssertionOptions | None:
    prefix = "sasl.oauthbearer.assertion."
    file, key_path, key_pem = (settings.get(prefix + name) for name in ("file", "private.key.file", "private.key.pem"))
    if file is None and key_path is None and key_pem is None:
        stray = next((name for name in settings if name.startswith(f"{prefix}claim.")), None)
        if stray is not None:
            raise OptionError(
                f"kafka.{stray} needs a key that signs assertions",
                remedy=f"Set kafka.{prefix}private.key.file to a PEM file on the driver and on every executor",
            )
        return None
    return AssertionOptions(
        file=file,
        key_path=key_path,
        key_pem=key_pem,
        key_passphrase=settings.get(f"{prefix}private.key.passphrase"),
        claims=tuple(
            (name, settings[f"{prefix}claim.{name}"])
            for name in ("iss", "sub", "aud")
            if f"{prefix}claim.{name}" in settings
        ),
        **declared_values(AssertionOptions, settings),
        template_path=settings.get(f"{prefix}template.file"),
    )


def _stores(settings: Mapping[str, str], jaas: Mapping[str, str]) -> KeyStores:
    """Return what the endpoint's TLS needs: Java has it in the login module's options, librdkafka in `https.ca.*`."""
    found = key_stores(jaas, OF_JAAS)
    if "https.ca.pem" in settings:
        found = replace(found, trusted_pem=settings["https.ca.pem"] or None)
    path = settings.get("https.ca.location")
    if path is not None:
        # librdkafka's word for the system's authorities.
        found = replace(
            found, trusted_path=None if path in ("probe", "") else path, trusted_setting="kafka.https.ca.location"
        )
    return found


def _extensions(settings: Mapping[str, str], jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {
        name.removeprefix(_JAAS_EXTENSION): value for name, value in jaas.items() if name.startswith(_JAAS_EXTENSION)
    }
    for pair in settings.get("sasl.oauthbearer.extensions", "").split(","):
        if pair.strip():
            name, _, value = pair.partition("=")
            found[name.strip()] = value.strip()
    problem = extension_problem(found)
    if problem:
        raise OptionError(
            f"{problem} in kafka.sasl.oauthbearer.extensions or kafka.sasl.jaas.config",
            remedy="Use name=value, as in logicalCluster=lkc-12345,identityPoolId=pool-abc",
        )
    return tuple(sorted(found.items()))


def extension_problem(extensions: Mapping[str, str]) -> str:
    """Return what is wrong with SASL extensions, or nothing; a value is not shown."""
    for name, value in extensions.items():
        if _EXTENSION_NAME.fullmatch(name) is None or name == "auth":
            return f"A SASL extension cannot have the name {name[:40]!r}"
        if _EXTENSION_VALUE.fullmatch(value) is None:
            return f"The SASL extension {name} has an invalid value"
    return ""


def _refresh(settings: Mapping[str, str]) -> RefreshOptions:
    return RefreshOptions(**declared_values(RefreshOptions, settings))
