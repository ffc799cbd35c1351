"""The configured listeners: their addresses on each broker, their protocols, settings and users."""

import logging
import re
import ssl
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from broker_core.broker.endpoints import PLAINTEXT, Address
from broker_core.broker.metadata import ClusterMetadata
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.installed import parts
from broker_core.ports import Entropy
from broker_core.security.principals import PrincipalRules
from broker_core.security.sasl import SaslSettings
from broker_core.security.sasl_jwt import KeySetPlace, SigningKey, read_key_set
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.security.sasl_passwords import MECHANISM_NAMES, credential_of_password
from broker_core.security.sasl_settings import SaslServices, sasl_settings
from broker_core.server.clock import monotonic_s
from broker_core.settings.values import LISTENER_PREFIX, listener_key
from broker_core.types import LAST_PORT, address_text, counted

logger = logging.getLogger(__name__)

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENTRY = re.compile(r"(?P<name>\w+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\s:/\[\]]*)):(?P<port>\d+)")
# The addresses of all interfaces, to which clients cannot connect.
_UNSPECIFIED = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """A listener's name, protocol, addresses and settings.

    The addresses belong to the first broker. Broker number n, counted from 0, adds n to the port; if the port is 0,
    each broker uses a free port.
    """

    name: str
    protocol: str
    bind: Address
    advertised: Address
    config: BrokerConfig

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def client_auth(self) -> str:
        """The value of `ssl.client.auth`; with SASL only the setting of the listener itself applies."""
        own_key = f"{LISTENER_PREFIX}{self.name.lower()}.ssl.client.auth"
        if self.has_sasl and own_key not in dict(self.config.listener_overrides):
            return "none"
        return self.config.ssl_client_auth

    def bind_port(self, index: int) -> int:
        return self.bind.port + index if self.bind.port else 0

    def advertised_address(self, index: int, bound_port: int) -> Address:
        port = self.advertised.port
        return Address(self.advertised.host, port + index if port else bound_port)


def listener_settings(listeners: Mapping[str, str], host: str, port: int, brokers: int) -> dict[str, str]:
    """Return the broker settings for the argument `listeners` of `EmbeddedBroker`."""
    ports = {name: port + number * brokers if port else 0 for number, name in enumerate(listeners)}
    return {
        "listeners": ",".join(f"{name}://{address_text(host, ports[name])}" for name in listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in listeners.items()),
    }


def plan_listeners(config: BrokerConfig, *, brokers: int, host: str, port: int) -> list[ListenerPlan]:
    """Return the configured listeners; without the setting, one PLAINTEXT listener at `host` and `port`.

    Raises `ConfigError` for settings and arguments that cannot be used.
    """
    if brokers < 1:
        raise ConfigError(f"brokers={brokers}: a cluster has at least one")
    bound = _entries("listeners", config.listeners, host) or {PLAINTEXT: Address(host, port)}
    advertised = _entries("advertised.listeners", config.advertised_listeners, host)
    _check_names("advertised.listeners", advertised, bound)
    protocols = _protocols(config.listener_security_protocol_map)
    plans = [
        ListenerPlan(name, _protocol_of(name, protocols), bind, advertised.get(name, bind), config.of_listener(name))
        for name, bind in bound.items()
    ]
    _check_overrides(config, bound)
    if config.inter_broker_listener_name:
        _check_names("inter.broker.listener.name", [config.inter_broker_listener_name], bound)
    _check_ports(plans, brokers)
    for plan in plans:
        if config.listeners and plan.advertised.host in _UNSPECIFIED:
            raise ConfigError(
                f"advertised.listeners: clients cannot connect to {plan.advertised.host}; "
                f"add {plan.name}://<host name for clients>:{plan.advertised.port}"
            )
    return plans


def read_addresses(text: str, brokers: Collection[int]) -> dict[int, Address]:
    """Return the address of each broker from `host:port,...`; ValueError for another form or number of addresses.

    >>> read_addresses("localhost:32768,[::1]:32769", [1, 2])[2]
    Address(host='::1', port=32769)
    """
    parts = [part.strip() for part in text.split(",")]
    entries = [_ENTRY.fullmatch(f"_://{part}") for part in parts]
    found = [Address(each["v6"] or each["host"], int(each["port"])) for each in entries if each is not None]
    if len(found) < len(parts) or not all(each.host and 0 < each.port <= LAST_PORT for each in found):
        raise ValueError(f"addresses={text!r}: expected host:port, with commas between several brokers")
    if len(found) != len(brokers):
        raise ValueError(
            f"addresses={text!r} are {len(found)}; expected one for each of {counted(len(brokers), 'broker')}"
        )
    return dict(zip(brokers, found, strict=True))


def joined_addresses(addresses: Mapping[str, Mapping[int, Address]]) -> dict[str, str]:
    return {
        name: ",".join(address_text(host, port) for host, port in of_brokers.values())
        for name, of_brokers in addresses.items()
    }


def started_line(
    listeners: Mapping[str, str], transaction_version: int, data_dir: object | None, services: Mapping[str, str]
) -> str:
    """Return what the command prints when clients can connect, with the addresses of other services by name.

    Listeners are named only if there are several.
    """
    if len(listeners) == 1:
        where = "".join(listeners.values())
    else:
        where = " and ".join(f"{name} {addresses}" for name, addresses in listeners.items())
    where += "".join(f", {name} at {url}" for name, url in services.items())
    kept = f"logs in {data_dir}" if data_dir else "logs in memory"
    return f"broker_core is listening on {where} (transaction.version {transaction_version}, {kept})"


def check_used(plans: Sequence[ListenerPlan], *, users: object, tls: object, port: int) -> None:
    """Raise `ConfigError` for users, a TLS context or a port that no listener uses."""
    if port and not plans:
        raise ConfigError(f"port={port}: listeners={{}} asks for none; omit one of the two")
    for name, value, is_used in (
        ("users", users, any(plan.has_sasl for plan in plans)),
        ("tls", tls, any(plan.has_tls for plan in plans)),
    ):
        if value and not is_used:
            raise ConfigError(
                f"{name}: no listener uses it; give listeners={{'SECURE': 'SASL_SSL'}}, or one "
                "with SASL_PLAINTEXT or SSL"
            )


def principal_rules(plans: Sequence[ListenerPlan]) -> dict[str, PrincipalRules]:
    """Return the rules for the names of client certificates of each listener where these are the users."""
    return {
        plan.name: PrincipalRules(plan.config.ssl_principal_mapping_rules)
        for plan in plans
        if plan.has_tls and not plan.has_sasl
    }


def sasl_of(
    plan: ListenerPlan,
    config: BrokerConfig,
    metadata: ClusterMetadata,
    entropy: Entropy,
    users: Mapping[str, str],
    token_validator: TokenValidator | None,
) -> SaslSettings | None:
    """Return the SASL settings of a listener, None without SASL; add `users` to the cluster's SCRAM credentials."""
    if not plan.has_sasl:
        return None
    services = SaslServices(
        lambda mechanism, user: metadata.scram.get((mechanism, user)),
        entropy,
        users,
        token_validator,
        KeySet,
        next((each.token_logins(metadata, config, entropy) for each in parts("logins")), None),
    )
    sasl = sasl_settings(config, plan.name, services)
    _add_scram_users(metadata, users, sasl.mechanisms, entropy)
    return sasl


def _add_scram_users(
    metadata: ClusterMetadata, users: Mapping[str, str], mechanisms: Collection[str], entropy: Entropy
) -> None:
    """Add users to the cluster's SCRAM credentials; existing credentials do not change."""
    for mechanism in sorted(MECHANISM_NAMES.intersection(mechanisms)):
        for user, password in users.items():
            known = metadata.scram.get((mechanism, user))
            if known is None:
                metadata.set_scram(mechanism, user, credential_of_password(mechanism, password, entropy))
            elif not known.is_of(mechanism, password):
                logger.info(
                    "users: %r keeps the %s password set by an earlier start or an administrator", user, mechanism
                )


def _entries(key: str, text: str, host: str) -> dict[str, Address]:
    """Parse `NAME://host:port,...`; an empty host is replaced with `host`."""
    entries: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        entry = _ENTRY.fullmatch(part)
        if entry is None or int(entry["port"]) > 65535:
            raise ConfigError(f"{key}: {part!r} is not of the form NAME://host:port")
        name = entry["name"].upper()
        if name in entries:
            raise ConfigError(f"{key}: {name} is named twice")
        entries[name] = Address(entry["v6"] or entry["host"] or host, int(entry["port"]))
    return entries


def _protocols(text: str) -> dict[str, str]:
    protocols = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = part.upper().partition(":")
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _protocol_of(name: str, protocols: Mapping[str, str]) -> str:
    if name not in protocols:
        raise ConfigError(
            f"listeners: {name} has no protocol; add {name}:SASL_SSL, or another of "
            f"{', '.join(_PROTOCOLS)}, to listener.security.protocol.map"
        )
    return protocols[name]


def _check_names(key: str, names: "Mapping[str, Address] | list[str]", bound: Mapping[str, Address]) -> None:
    for name in names:
        if name.upper() not in bound:
            raise ConfigError(f"{key}: there is no listener {name}; listeners has {', '.join(bound)}")


def _check_overrides(config: BrokerConfig, bound: Mapping[str, Address]) -> None:
    for key, _ in config.listener_overrides:
        found = listener_key(key)
        assert found is not None
        name = found.listener
        if name.upper() not in bound or name != name.lower():
            raise ConfigError(
                f"{key}: there is no listener {name}; its name is written in lower case here, and "
                f"listeners has {', '.join(bound)}"
            )


def _check_ports(plans: list[ListenerPlan], brokers: int) -> None:
    taken: dict[int, str] = {}
    for plan in plans:
        for index in range(brokers):
            port = plan.bind_port(index)
            if port and taken.setdefault(port, plan.name) != plan.name:
                raise ConfigError(
                    f"listeners: {plan.name} and {taken[port]} both need port {port}; each broker takes "
                    f"the next port, so leave {brokers} between two listeners"
                )
            if not 0 <= port <= LAST_PORT:
                raise ConfigError(
                    f"listeners: {plan.name} needs port {port} for broker number {index + 1}; ports are from 0 to "
                    f"{LAST_PORT}"
                )


if TYPE_CHECKING:
    from urllib.request import OpenerDirector


_URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 4 * 1024 * 1024


class KeySet:
    """The key set (JWKS) of an identity provider, read from a file or a URL and kept up to date by a thread.

    A lookup never waits. As in Kafka, a token that is signed with an unknown key is refused, and the set is read again,
    so that a later token with that key is accepted.
    """

    def __init__(self, place: KeySetPlace) -> None:
        parts = urlsplit(place.url)
        if parts.scheme not in ("https", "http", "file"):
            raise ConfigError(f"{_URL_SETTING} is neither an https nor a file URL")
        self._place = place
        self._path = unquote(parts.path) if parts.scheme == "file" else None
        self._shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        self._opener = self._make_opener()
        self._lock = threading.Lock()
        self._is_reading = False
        self._keys = self._read_with_retries()
        self._read_at = monotonic_s()

    def __call__(self, key_id: str | None) -> tuple[SigningKey, ...]:
        age_ms = 1000 * (monotonic_s() - self._read_at)
        keys = tuple(key for key in self._keys if key_id is None or key.key_id == key_id)
        if age_ms > self._place.refresh_ms or (not keys and age_ms > self._place.retry_backoff_ms):
            self._read_in_thread()
        return keys

    def _read_in_thread(self) -> None:
        with self._lock:
            if self._is_reading:
                return
            self._is_reading = True
        threading.Thread(target=self._refresh, name="key set", daemon=True).start()

    def _refresh(self) -> None:
        try:
            self._keys = self._read_with_retries()
        except ConfigError as error:
            logger.warning("the key set is not read again, the previous one remains in use: %s", error)
        finally:
            self._read_at = monotonic_s()
            self._is_reading = False

    def _read_with_retries(self) -> tuple[SigningKey, ...]:
        place = self._place
        until = monotonic_s() + place.retry_backoff_max_ms / 1000
        delay_s = place.retry_backoff_ms / 1000
        while True:
            try:
                return read_key_set(self._read())
            except OSError as error:
                problem = f"{_URL_SETTING}: cannot read {self._shown}: {error}"
            except ConfigError as error:
                raise ConfigError(f"{_URL_SETTING}: {self._shown}: {error}") from None
            left_s = until - monotonic_s()
            if left_s <= 0:
                raise ConfigError(problem)
            time.sleep(min(delay_s, left_s))
            delay_s *= 2

    def _read(self) -> bytes:
        if self._path is not None:
            with open(self._path, "rb") as file:
                return file.read(_MOST_BYTES)
        with self._opener.open(self._place.url, timeout=_TIMEOUT_S) as response:
            return bytes(response.read(_MOST_BYTES))

    def _make_opener(self) -> "OpenerDirector":
        # Few brokers read keys from a URL, and the import takes 4 ms.
        import urllib.request

        try:
            context = ssl.create_default_context(cafile=self._place.ca_path, cadata=self._place.ca_pem)
        except (OSError, ValueError):
            raise ConfigError("ssl.truststore.* in sasl.jaas.config: cannot read the PEM certificates") from None
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
