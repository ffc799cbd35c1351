"""The `kafka.*` options of a query, parsed for the client."""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_core.jaas import read_jaas
from spark_eos.errors import OptionError
from spark_eos.options.catalog import (
    CONSUMER,
    DECLARED,
    PLATFORM_OPTIONS,
    SETTINGS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Treatment,
    declared,
    declared_values,
    nearest_setting,
    setting_of,
)
from spark_eos.options.key_stores import NO_LIMITS, NO_STORES, KeyStores, TlsLimits, key_stores, tls_limits
from spark_eos.options.logins import AwsLogin, KerberosLogin, is_delegation_token, of_module, sasl_login, sasl_mechanism
from spark_eos.options.oauth import OAuthOptions, check_values, no_token, oauth_options

logger = logging.getLogger(__name__)

PREFIX: Final = "kafka."
SECURITY_PROTOCOLS: Final = DECLARED["security.protocol"].choices
SASL_MECHANISMS: Final = DECLARED["sasl.mechanism"].choices
# Kafka settings that the source or the sink also accepts without the prefix; one set of options may serve both.
_WITHOUT_PREFIX: Final = frozenset(SETTINGS).intersection(each.name for each in (*SINK_OPTIONS, *SOURCE_OPTIONS))
_USUAL_PORT: Final = 9092
# What Java's client takes for one: two addresses with another separator are none.
_HOST: Final = re.compile(r"\[?[0-9a-zA-Z%._:-]+\]?")
_PORT: Final = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The connection settings of a cluster; picklable, so they reach executors. `repr` never shows secrets."""

    bootstrap_servers: tuple[str, ...]
    client_id: str = declared("client.id")
    security_protocol: str = declared("security.protocol")
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_oauth: OAuthOptions | None = None
    sasl_login: AwsLogin | KerberosLogin | None = None
    sasl_delegation_token: bool = False
    ssl_stores: KeyStores = NO_STORES
    ssl_check_hostname: bool = True
    ssl_limits: TlsLimits = NO_LIMITS
    client_dns_lookup: str = declared("client.dns.lookup")
    request_timeout_ms: int = declared("request.timeout.ms")
    api_timeout_ms: int = declared("default.api.timeout.ms")
    delivery_timeout_ms: int = declared("delivery.timeout.ms")
    retry_backoff_ms: int = declared("retry.backoff.ms")
    retry_backoff_max_ms: int = declared("retry.backoff.max.ms")
    reconnect_backoff_ms: int = declared("reconnect.backoff.ms")
    reconnect_backoff_max_ms: int = declared("reconnect.backoff.max.ms")
    connection_setup_timeout_ms: int = declared("socket.connection.setup.timeout.ms")
    connection_setup_timeout_max_ms: int = declared("socket.connection.setup.timeout.max.ms")
    connections_max_idle_ms: int = declared("connections.max.idle.ms")
    # As in Java, -1 means the operating system's size.
    send_buffer_bytes: int = declared("send.buffer.bytes")
    receive_buffer_bytes: int = declared("receive.buffer.bytes")
    receive_message_max_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise OptionError(
                "kafka.bootstrap.servers is empty", remedy="Give host:port, or several separated by commas"
            )
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise _not_one_of("security.protocol", self.security_protocol, SECURITY_PROTOCOLS)
        if self.security_protocol.startswith("SASL"):
            self._check_sasl()

    def _check_sasl(self) -> None:
        if self.sasl_mechanism not in SASL_MECHANISMS:
            raise _not_one_of("sasl.mechanism", self.sasl_mechanism, SASL_MECHANISMS)
        if self.sasl_mechanism == "OAUTHBEARER":
            if self.sasl_oauth is None:
                raise no_token(self.security_protocol)
        elif self.sasl_login is None and (self.sasl_username is None or self.sasl_password is None):
            raise OptionError(
                f"{self.security_protocol} with {self.sasl_mechanism} needs a user name and a password",
                remedy="Set kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password",
            )


def client_options(options: Mapping[str, str], *, side: str = CONSUMER) -> ClientOptions:
    return client_options_from(kafka_settings(options, side=side))


def kafka_settings(options: Mapping[str, str], *, side: str = CONSUMER) -> dict[str, str]:
    """Return the `kafka.*` options that take effect on this side, by their Java names without the prefix."""
    settings: dict[str, str] = {}
    for written, value in options.items():
        if not written.lower().startswith(PREFIX):
            continue
        name = _effective_name(written, value, side)
        if name is None:
            continue
        if name in settings and settings[name] != value:
            raise OptionError(f"Option '{written}' sets {name} a second time", remedy="Keep one of the two names")
        settings[name] = value
    if not settings.get("bootstrap.servers", "").strip():
        raise OptionError(
            f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {side}",
            remedy='Add .option("kafka.bootstrap.servers", "host:9092"), or in SQL WITH (`kafka.bootstrap.servers` = '
            "'host:9092') after the table: a table does not keep OPTIONS",
        )
    return settings


def refuse_platform_options(options: Iterable[str]) -> None:
    """Refuse the options by which a platform's own connector finds brokers or credentials."""
    for written in options:
        platform = PLATFORM_OPTIONS.get(written.lower().removeprefix(PREFIX))
        if platform is not None:
            raise OptionError(
                f"Option '{platform.name}' of {platform.platform} does not work with eos-kafka",
                checked=platform.meaning,
                remedy=platform.remedy,
            )


def refuse_without_prefix(options: Iterable[str]) -> None:
    """Refuse a Kafka client setting without the prefix, because it would have no effect."""
    for written in options:
        name = written.lower()
        if name.startswith(PREFIX) or name in _WITHOUT_PREFIX:
            continue
        # Spark and its users have other options, in one word; only names with dots are checked for misspelling.
        near = name if setting_of(name) is not None else None
        if "." in name and near is None:
            near = nearest_setting(name, cutoff=0.9)
        if near is not None and near not in _WITHOUT_PREFIX:
            setting = SETTINGS[near]
            useless = setting.treatment is Treatment.REFUSED and not setting.allowed
            raise OptionError(
                f"Option '{written}' has no effect without the prefix 'kafka.'",
                checked="It looks like a setting of the Kafka client",
                remedy=f"Remove it: {setting.text}" if useless else f"Did you mean 'kafka.{near}'?",
            )


def refuse_similar(written: str, known: Mapping[str, str], *, cutoff: float) -> None:
    """Refuse a name that is similar to a `known` one, each by its form in lower case."""
    near = difflib.get_close_matches(written.lower(), known, n=1, cutoff=cutoff)
    if near:
        raise OptionError(f"Unknown option '{written}'", remedy=f"Did you mean '{known[near[0]]}'?")


def client_options_from(settings: Mapping[str, str]) -> ClientOptions:
    """Build `ClientOptions` from settings that `kafka_settings` has checked."""
    _warn_without_sasl(settings)
    mechanism = sasl_mechanism(settings)
    login = sasl_login(settings)
    by_token = mechanism == "OAUTHBEARER"
    check_values(settings)
    jaas, modules = settings.get("sasl.jaas.config"), ("OAuthBearerLoginModule",)
    oauth = None
    if by_token:
        oauth = oauth_options(settings, {} if jaas is None else of_module(read_jaas(jaas), modules).options)
    username, password = (None, None) if by_token or login is not None else _credentials(settings)
    return ClientOptions(
        bootstrap_servers=_addresses(settings["bootstrap.servers"]),
        sasl_mechanism=mechanism,
        sasl_username=username,
        sasl_password=password,
        sasl_oauth=oauth,
        sasl_login=login,
        sasl_delegation_token=is_delegation_token(settings),
        ssl_stores=key_stores(settings),
        ssl_check_hostname=settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "https",
        ssl_limits=tls_limits(settings.get("ssl.enabled.protocols"), settings.get("ssl.cipher.suites")),
        **declared_values(ClientOptions, settings),
    )


def _effective_name(written: str, value: str, side: str) -> str | None:
    """Return the Java name of a setting that takes effect, None if it has none here; refuse what cannot work."""
    name = written.lower().removeprefix(PREFIX)
    setting = setting_of(name)
    if setting is not None and setting.treatment is Treatment.MAPPED:
        setting = SETTINGS[setting.target]
    if setting is None:
        near = nearest_setting(name, cutoff=0.6)
        raise OptionError(
            f"Unknown option '{written}'",
            checked="Use a setting of the Java client or of librdkafka, with the prefix kafka.",
            remedy=f"Did you mean 'kafka.{near}'?" if near else "Remove it",
        )
    if side not in setting.sides:
        clients = " and ".join(sorted(setting.sides))
        logger.debug("Option '%s' has no effect on a %s; it is a setting of a %s", written, side, clients)
        return None
    if setting.treatment is Treatment.HONORED:
        return setting.name
    if setting.treatment is Treatment.REFUSED and not setting.allows(value):
        if not setting.allowed:
            raise OptionError(
                f"Kafka option '{name}' is not supported", remedy=setting.text[:1].upper() + setting.text[1:]
            )
        raise OptionError(f"Kafka option '{name}' cannot be {value!r}: {setting.text}", remedy="Remove the option")
    if setting.treatment is Treatment.REFUSED:
        # Some classes select a way to authenticate.
        return setting.name
    logger.debug("Option '%s' has no effect: %s", written, setting.text)
    return None


def _warn_without_sasl(settings: Mapping[str, str]) -> None:
    """Warn of credentials that are not used; Java's clients ignore them silently too."""
    protocol = settings.get("security.protocol", DECLARED["security.protocol"].default).upper()
    if protocol in SECURITY_PROTOCOLS and not protocol.startswith("SASL"):
        unused = [name for name in ("sasl.jaas.config", "sasl.mechanism", "sasl.username") if name in settings]
        if unused:
            logger.warning(
                "kafka.%s has no effect, because kafka.security.protocol is %s; set it to SASL_SSL or SASL_PLAINTEXT",
                unused[0],
                protocol,
            )


def _not_one_of(name: str, value: object, allowed: tuple[str, ...]) -> OptionError:
    return OptionError(f"Option 'kafka.{name}' is {value!r}", remedy=f"Use one of {', '.join(allowed)}")


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        without_scheme = address.split("://", 1)[-1]
        # A URL may have a password.
        shown = address.rpartition("@")[2]
        port = "" if without_scheme.endswith("]") else without_scheme.partition(":")[2].rpartition(":")[2]
        if not port:
            raise OptionError(
                f"kafka.bootstrap.servers contains {shown!r}, which has no port",
                remedy=f"Write {shown.rstrip(':')}:{_USUAL_PORT}, or the port of the brokers' listener",
            )
        if _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
            raise OptionError(
                f"kafka.bootstrap.servers contains {shown!r}, which has no valid port", remedy="Give host:port"
            )
        if not _HOST.fullmatch(without_scheme.rpartition(":")[0]):
            raise OptionError(
                f"kafka.bootstrap.servers contains {shown!r}, which has no valid host",
                remedy="Give host:port, several separated by commas",
            )
    return addresses


def _credentials(settings: Mapping[str, str]) -> tuple[str | None, str | None]:
    jaas = settings.get("sasl.jaas.config")
    if jaas is None:
        return settings.get("sasl.username"), settings.get("sasl.password")
    pairs = of_module(read_jaas(jaas), ("PlainLoginModule", "ScramLoginModule")).options
    if "username" not in pairs or "password" not in pairs:
        raise OptionError(
            "kafka.sasl.jaas.config has no username or no password",
            remedy='Set it to: org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
            'password="p";',
        )
    return pairs["username"], pairs["password"]
