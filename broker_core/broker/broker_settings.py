"""The settings in force at each broker: its first ones, and the changes while it runs (KIP-226)."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.metadata_records import ALL_BROKERS, ConfigResource, StoredSettings
from broker_core.config import BrokerConfig, base_key
from broker_core.errors import ConfigError, invalid_request
from broker_core.java_values import trim
from broker_core.settings.catalog import (
    CLUSTER_WIDE,
    DEFAULTS,
    DYNAMIC,
    OF_LISTENERS,
    OF_MECHANISMS,
    OF_STORES,
    PER_BROKER,
    SETTINGS,
    TYPES,
    kind_of,
)
from broker_core.settings.served import ListenerConfig
from broker_core.settings.values import (
    ADDRESS_LIMITS,
    address_limits,
    check_as_kafka,
    check_list,
    listener_key,
    parse_kind,
    split_list,
    wrong,
)
from broker_core.types import NO_LEADER

# What Apache Kafka requires of all settings together; here of each that changes.
_REQUIREMENTS: Final[dict[str, tuple[Callable[[int], bool], str]]] = {
    "log.retention.ms": (lambda value: value != 0, "must be unlimited (-1) or, greater than or equal to 1"),
    "log.roll.ms": (lambda value: value >= 1, "must be greater than or equal to 1"),
    "log.roll.jitter.ms": (lambda value: value >= 0, "must be greater than or equal to 0"),
}
_SERVED: Final = BrokerConfig.keys()
logger = logging.getLogger(__name__)


_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAP: Final = "listener.security.protocol.map"
_NETWORK_THREADS: Final = "num.network.threads"
_CLEANER_THREADS: Final = "log.cleaner.threads"
_CLEANER_MEMORY: Final = "log.cleaner.dedupe.buffer.size"
_ALL_BROKERS_OF_LISTENERS: Final = OF_LISTENERS | {_NETWORK_THREADS}
_KEYS_OF_LISTENERS: Final = ListenerConfig.keys()
# A change of one of these makes Kafka compare the settings of all listeners with those at the start.
_COMPARED: Final = (PER_BROKER | _ALL_BROKERS_OF_LISTENERS) - {"cordoned.log.dirs"}
# Another check of a change: of the broker with this id, whose changed settings will be these.
ChangeCheck = Callable[[int, Mapping[str, str]], None]


class BrokerSettings:
    """The settings in force; `subscribe` calls back after each change."""

    def __init__(self, static: BrokerConfig, stored: StoredSettings) -> None:
        self.static = static
        self._stored = stored
        self._in_force: dict[int, BrokerConfig] = {}
        self._version = stored.version
        self._subscribers: list[Callable[[], None]] = []
        self._checks: list[ChangeCheck] = []

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.append(callback)

    def changed(self) -> None:
        for callback in self._subscribers:
            callback()

    def of(self, broker_id: int) -> BrokerConfig:
        """Return the settings in force at a broker; for `NO_LEADER`, the settings of all brokers."""
        if self._version != self._stored.version:
            self._in_force.clear()
            self._version = self._stored.version
        found = self._in_force.get(broker_id)
        if found is None:
            found = self._in_force[broker_id] = self._compute(broker_id)
        return found

    def _compute(self, broker_id: int) -> BrokerConfig:
        config = self.static
        for name in (ALL_BROKERS,) if broker_id == NO_LEADER else (ALL_BROKERS, str(broker_id)):
            changes = self._stored.of(ConfigResource.BROKER, name)
            try:
                config = _changed(config, changes)
            except ConfigError as error:
                logger.error("the settings of %s are not applied: %s", f"broker {name}" if name else "brokers", error)
        return config

    def check_with(self, check: ChangeCheck) -> None:
        """Let `check` refuse changes, too; it raises `ConfigError`."""
        self._checks.append(check)

    def check(self, broker_id: int, settings: Mapping[str, str], *, is_default: bool) -> None:
        """Raise INVALID_REQUEST, as Kafka does, unless a broker can have all these settings while it runs.

        `is_default` says that they count for all brokers.
        """
        _check_names(settings)
        own, of_all = self.dynamic(broker_id), self.dynamic_defaults()
        after = {**settings, **own} if is_default else {**of_all, **settings}
        try:
            for key, text in settings.items():
                found = listener_key(key)
                _check_alone(key if found is None else found.base, text)
            if is_default:
                why = "Cannot update these configs at default cluster level, broker id must be specified"
                _refuse_any([key for key in settings if _needs_broker_id(key)], why)
            _check_together(_changed(self.static, settings), settings)
            _check_running(self.static, {**of_all, **own}, after)
            for check in self._checks:
                check(broker_id, after)
        except ConfigError as error:
            raise invalid_request(str(error)) from None

    def dynamic(self, broker_id: int) -> Mapping[str, str]:
        return self._stored.of(ConfigResource.BROKER, str(broker_id))

    def dynamic_defaults(self) -> Mapping[str, str]:
        return self._stored.of(ConfigResource.BROKER, ALL_BROKERS)


def _changed(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with those changed that brokers here have; `ConfigError` if they conflict."""
    with_effect = {
        key: text
        for key, text in changes.items()
        if (key in _SERVED and key in CLUSTER_WIDE) or base_key(key) in OF_LISTENERS | OF_STORES
    }
    changed = config.override(with_effect)
    changed.topic_defaults().override({})
    return changed


def _check_names(settings: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST for settings that do not change while a broker runs."""
    fixed = [key for key in settings if kind_of(key) is not None and key not in DYNAMIC]
    _refuse_any(fixed, "Cannot update these configs dynamically")
    _refuse_any(
        [key for key in settings if key in OF_STORES],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )


def _check_alone(key: str, text: str) -> None:
    """Raise `ConfigError`, with Kafka's message, for a value that is wrong whatever the other settings are."""
    kind = kind_of(key)
    if kind is None or key not in DYNAMIC:
        return
    value = parse_kind(key, kind, text)
    if key in OF_LISTENERS and value == 0:
        raise refused_at_run_time(f"Invalid {key} 0")
    if key in _REQUIREMENTS:
        is_allowed, problem = _REQUIREMENTS[key]
        if not is_allowed(value):
            raise ConfigError(f"requirement failed: {key} {problem}")
    elif key == ADDRESS_LIMITS:
        address_limits(value)
    elif SETTINGS[key].low is not None or (key in CLUSTER_WIDE and key in _SERVED):
        check_as_kafka(key, text)
    elif key in PER_BROKER:
        _check_value(key, text)
    elif kind == "LIST" and key in CLUSTER_WIDE:
        check_list(key, split_list(text))


def _check_together(changed: BrokerConfig, settings: Mapping[str, str]) -> None:
    is_limited = settings.keys() & {"max.connections.per.ip", ADDRESS_LIMITS}
    if is_limited and not changed.max_connections_per_ip and not changed.max_connections_per_ip_overrides:
        raise ConfigError(
            f"requirement failed: max.connections.per.ip can be set to zero only if {ADDRESS_LIMITS} property is set."
        )
    longest = {
        "consumer": changed.group_consumer_max_assignment_interval_ms,
        "share": changed.group_share_max_assignment_interval_ms,
        "streams": int(DEFAULTS["group.streams.max.assignment.interval.ms"] or 0),
    }
    for kind, longest_ms in longest.items():
        key = f"group.{kind}.assignment.interval.ms"
        if key in settings and int(trim(settings[key])) > longest_ms:
            raise ConfigError(f"{key} must be less than or equal to group.{kind}.max.assignment.interval.ms")


def _refuse_any(names: list[str], why: str) -> None:
    if names:
        raise invalid_request(f"{why}: [{', '.join(sorted(names))}]")


def base_of(key: str) -> str:
    """Return the setting of which a key with the prefix of a listener, or of its mechanism, is a value; or the key.

    >>> base_of("listener.name.sasl.plain.sasl.jaas.config")
    'sasl.jaas.config'
    """
    found = listener_key(key)
    if found is None:
        return key
    return next((name for name in OF_MECHANISMS if found.base.endswith(name)), found.base)


def _needs_broker_id(key: str) -> bool:
    """Return whether a setting has a value for each broker only, none for all of them."""
    found = listener_key(key)
    return key in PER_BROKER if found is None else found.base not in _ALL_BROKERS_OF_LISTENERS


def refused_at_run_time(problem: str) -> ConfigError:
    """Return the error of a setting that is valid, and that Kafka cannot apply while it runs."""
    value = f"org.apache.kafka.common.config.ConfigException: {problem}"
    return ConfigError(f"Invalid value {value} for configuration Invalid dynamic configuration")


def _check_value(key: str, text: str) -> None:
    """Raise `ConfigError` for a value of a single broker's setting that is wrong whatever the others are."""
    kind = TYPES.get(key)
    if kind == "LIST":
        parts = split_list(text)
        if key == "listeners" and not parts:
            raise ConfigError(f"Configuration '{key}' must not be empty. Valid values include: any non-empty value")
        check_list(key, parts)
    elif key == "ssl.client.auth" and trim(text) not in ("required", "requested", "none"):
        raise wrong(key, trim(text), "String must be one of: required, requested, none")
    elif kind == "CLASS" and trim(text) not in (SETTINGS[key].java or ()):
        raise wrong(key, trim(text), f"Class {trim(text)} could not be found.")


def _check_running(static: BrokerConfig, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless a broker that runs with some changed settings can run with others.

    `before` has been changed since the start, also for all brokers; `after` is what it will be.
    """
    protocols = _listeners(static)
    _check_places(static, after)
    for key, text in after.items():
        found = listener_key(key)
        if found is not None and found.listener.upper() in protocols and found.listener == found.listener.lower():
            _check_of_listener(found.base, text)
    at_start = dict(static.given)
    _check_cleaner({**at_start, **after})
    # One that is deleted falls back to another.
    for key in {**after, **before}:
        _check_threads(key, {**at_start, **before}, {**at_start, **after})
    if any(_is_change(static, key, before, after) for key in _COMPARED):
        _check_protocols(protocols, after)
        _check_fixed(static, protocols, after)


def _listeners(static: BrokerConfig) -> dict[str, str]:
    names = [entry.partition(":")[0].strip().upper() for entry in split_list(static.listeners)] or ["PLAINTEXT"]
    protocols = _protocols(static.listener_security_protocol_map)
    return {name: protocols.get(name, "") for name in names}


def _protocols(text: str) -> dict[str, str]:
    """Return the protocols of `listener.security.protocol.map`; raise `ConfigError` with Kafka's message."""
    protocols = {}
    for part in filter(None, split_list(text)):
        name, colon, protocol = part.rpartition(":")
        if not colon:
            raise ConfigError(f"Error parsing configuration property '{_MAP}': begin 0, end -1, length {len(part)}")
        if protocol.strip().upper() not in _PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol.strip()}` defined in {_MAP}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _check_places(static: BrokerConfig, after: Mapping[str, str]) -> None:
    """Raise `ConfigError` for folders and addresses that the broker does not have."""
    cordoned = split_list(after.get("cordoned.log.dirs", ""))
    if cordoned:
        raise ConfigError(
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {','.join(cordoned)}"
        )
    places = split_list(after.get("listeners", static.listeners))
    shown = f"Error creating broker listeners from '[{', '.join(places)}]'"
    for place in places:
        if "://" not in place:
            raise ConfigError(f"{shown}: Unable to parse {place} to a broker endpoint")
    names = [place.partition(":")[0].upper() for place in places]
    if _MAP in after:
        protocols = _protocols(after[_MAP])
        for name in names:
            if name not in protocols:
                raise ConfigError(f"{shown}: No security protocol defined for listener {name}")
    if "listeners" in after and set(places) != set(split_list(static.listeners)):
        # Kafka opens and closes the ports of listeners that are not advertised.
        raise refused_at_run_time("listeners do not change while the broker runs: restart it with the new ones")


def _check_of_listener(base: str, text: str) -> None:
    """Raise `ConfigError` for a value of a listener's setting that the broker cannot read."""
    # The name of a mechanism may stand in front of every setting.
    key = base if base in TYPES else base.partition(".")[2]
    kind = TYPES.get(key)
    if kind is None or base in DYNAMIC:
        return
    try:
        parse_kind(key, kind, text)
        if key in PER_BROKER or kind == "CLASS":
            _check_value(key, text)
        elif key in _SERVED and key not in _KEYS_OF_LISTENERS:
            check_as_kafka(key, text)
    except ConfigError as error:
        raise refused_at_run_time(str(error)) from None


def _check_cleaner(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for too little memory for each thread of the cleaner."""
    threads, size = (int(trim(settings.get(key, DEFAULTS[key] or ""))) for key in (_CLEANER_THREADS, _CLEANER_MEMORY))
    if not threads:
        raise ConfigError("/ by zero")
    if size // threads <= 1 << 20:
        raise ConfigError(f"requirement failed: {_CLEANER_MEMORY} must be at least 1MB per cleaner thread.")


def _check_threads(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `ConfigError` for a number of threads that differs too much from the present one."""
    found = listener_key(key)
    base = key if found is None else found.base
    if base not in SETTINGS or not SETTINGS[base].is_thread_pool or (found is not None and base != _NETWORK_THREADS):
        return
    default = DEFAULTS[base] or ""
    present, new = (int(trim(settings.get(key, settings.get(base, default)))) for settings in (before, after))
    is_cleaner = base == _CLEANER_THREADS
    problem = None
    if new < present // 2:
        problem = "cannot be reduced to less than half" if is_cleaner else "should be at least half"
    elif new > present * 2:
        problem = "cannot be increased to more than double" if is_cleaner else "should not be greater than double"
    if problem is not None:
        update = f"Dynamic thread count update validation failed for {base}={new}, value"
        raise refused_at_run_time(
            f"{'Log cleaner threads' if is_cleaner else update} {problem} the current value {present}"
        )


def _is_change(static: BrokerConfig, key: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    spec = _SERVED.get(key)
    at_start = None if spec is None else str(getattr(static, spec.name))
    return before.get(key, at_start) != after.get(key, at_start)


def _check_protocols(protocols: Mapping[str, str], after: Mapping[str, str]) -> None:
    if _MAP not in after:
        return
    changed = _protocols(after[_MAP])
    for name, protocol in protocols.items():
        if changed.get(name, protocol) != protocol:
            raise refused_at_run_time(f"Security protocol cannot be updated for existing listener ListenerName({name})")


def _check_fixed(static: BrokerConfig, protocols: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings of listeners that Kafka reads when it opens the listener."""
    at_start = dict(static.listener_overrides)
    for key, text in after.items():
        found = listener_key(key)
        if found is None or found.base in OF_STORES | _ALL_BROKERS_OF_LISTENERS or at_start.get(key) == text:
            continue
        name = found.listener.upper()
        if name in protocols and found.listener == found.listener.lower():
            raise refused_at_run_time(
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), "
                "restart broker or create a new listener for update"
            )
