"""The checks of settings of listeners, SASL and TLS that change while a broker runs, with Kafka's messages."""

from collections.abc import Callable, Mapping
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.java_values import trim
from broker_core.listener_keys import listener_key
from broker_core.settings.catalog import (
    DEFAULTS,
    DYNAMIC,
    OF_LISTENERS,
    OF_MECHANISMS,
    OF_STORES,
    PER_BROKER,
    SETTINGS,
    TYPES,
)
from broker_core.settings.served import ListenerConfig
from broker_core.settings.values import check_as_kafka, check_list, parse_kind, split_list, wrong

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAP: Final = "listener.security.protocol.map"
_NETWORK_THREADS: Final = "num.network.threads"
_CLEANER_THREADS: Final = "log.cleaner.threads"
_ALL_BROKERS_OF_LISTENERS: Final = OF_LISTENERS | {_NETWORK_THREADS}
_SERVED: Final = BrokerConfig.keys()
_KEYS_OF_LISTENERS: Final = ListenerConfig.keys()
# A change of one of these makes Kafka compare the settings of all listeners with those at the start.
_COMPARED: Final = (PER_BROKER | _ALL_BROKERS_OF_LISTENERS) - {"cordoned.log.dirs"}
# Another check of a change: of the broker with this id, whose changed settings will be these.
ChangeCheck = Callable[[int, Mapping[str, str]], None]


def base_of(key: str) -> str:
    """Return the setting of which a key with the prefix of a listener, or of its mechanism, is a value; or the key.

    >>> base_of("listener.name.sasl.plain.sasl.jaas.config")
    'sasl.jaas.config'
    """
    found = listener_key(key)
    if found is None:
        return key
    return next((name for name in OF_MECHANISMS if found.base.endswith(name)), found.base)


def needs_broker_id(key: str) -> bool:
    """Return whether a setting has a value for each broker only, none for all of them."""
    found = listener_key(key)
    return key in PER_BROKER if found is None else found.base not in _ALL_BROKERS_OF_LISTENERS


def refused_at_run_time(problem: str) -> ConfigError:
    """Return the error of a setting that is valid, and that Kafka cannot apply while it runs."""
    value = f"org.apache.kafka.common.config.ConfigException: {problem}"
    return ConfigError(f"Invalid value {value} for configuration Invalid dynamic configuration")


def check_value(key: str, text: str) -> None:
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


def check_changes(static: BrokerConfig, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless a broker that runs with some changed settings can run with others.

    Args:
        static: The settings that the broker started with.
        before: The settings that have been changed since, those of all brokers among them.
        after: What these will be.
    """
    protocols = _listeners(static)
    _check_places(static, after)
    for key, text in after.items():
        found = listener_key(key)
        if found is not None and found.listener.upper() in protocols and found.listener == found.listener.lower():
            _check_of_listener(found.base, text)
    at_start = dict(static.given)
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
            check_value(key, text)
        elif key in _SERVED and key not in _KEYS_OF_LISTENERS:
            check_as_kafka(key, text)
    except ConfigError as error:
        raise refused_at_run_time(str(error)) from None


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
    if is_cleaner and new == 0:
        # Kafka divides the memory of the cleaner by it before it compares.
        raise ConfigError("/ by zero")
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
