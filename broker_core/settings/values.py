"""The values of settings: how their texts are read, translated, checked with Kafka's messages, and shown."""

import re
from collections.abc import Collection, Mapping, Set
from typing import Any, Final, NamedTuple

from broker_core.errors import ConfigError
from broker_core.java_values import double_text, parse_double, parse_whole, trim
from broker_core.settings.catalog import LONGER_UNITS, SETTINGS, TYPES, Declaration

WHOLE_MAX: Final = {"INT": 2**31 - 1, "LONG": 2**63 - 1, "SHORT": 2**15 - 1}
_REPLICA: Final = re.compile(r"(?:\d+:\d+)?")
ADDRESS_LIMITS: Final = "max.connections.per.ip.overrides"
LISTENER_PREFIX = "listener.name."


class ListenerKey(NamedTuple):
    """A key with the prefix of a listener: the listener's name, and the setting without the prefix."""

    listener: str
    base: str


def listener_key(key: str) -> ListenerKey | None:
    """Return the parts of a key with the prefix of a listener, None for other keys.

    >>> listener_key("listener.name.tls.ssl.keystore.key")
    ListenerKey(listener='tls', base='ssl.keystore.key')
    """
    listener, dot, base = key.removeprefix(LISTENER_PREFIX).partition(".")
    return ListenerKey(listener, base) if dot and key.startswith(LISTENER_PREFIX) else None


def parse_kind(key: str, kind: str, text: str) -> Any:
    """Return the value of a text of one of Kafka's types; raise `ConfigError`, with Kafka's message, if it has none.

    The value of a text that is neither a number nor a boolean is the text itself, trimmed.
    """
    trimmed = trim(text)
    value: Any = trimmed
    if kind == "BOOLEAN":
        value = {"true": True, "false": False}.get(trimmed.lower())
    elif kind in WHOLE_MAX:
        value = parse_whole(trimmed)
        if value is not None and not -WHOLE_MAX[kind] - 1 <= value <= WHOLE_MAX[kind]:
            value = None
    elif kind == "DOUBLE":
        value = parse_double(trimmed)
    if value is None:
        what = "Expected value to be either true or false" if kind == "BOOLEAN" else f"Not a number of type {kind}"
        raise ConfigError(f"Invalid value {text} for configuration {key}: {what}")
    return value


def as_shown(kind: str, text: str) -> str:
    """Return a valid value of one of Kafka's types as DescribeConfigs shows it."""
    value = parse_kind("", kind, text)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return double_text(value)
    return ",".join(split_list(text)) if kind == "LIST" else str(value)


def wrong(key: str, value: object, problem: str) -> ConfigError:
    shown = double_text(value) if isinstance(value, float) else value
    return ConfigError(f"Invalid value {shown} for configuration {key}: {problem}")


def too_small(key: str, value: float, low: float) -> ConfigError:
    return wrong(key, value, f"Value must be at least {low}")


def check_as_kafka(key: str, text: str) -> None:
    declared = SETTINGS[key]
    value = parse_kind(key, declared.type, text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(declared, value)
    elif declared.names_choices and (value or not declared.may_be_empty):
        _check_named(declared, value)
    elif declared.is_replicas:
        parts = split_list(value)
        if "".join(parts) != "*" and not all(_REPLICA.fullmatch(part) for part in parts):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            problem = f"{key} must be the literal '*' or a list of replicas in the following format: {form}"
            raise wrong(key, f"[{', '.join(parts)}]", problem)


def _check_number(declared: Declaration, value: float) -> None:
    key, low, high, other = declared.name, declared.low, declared.high, declared.other
    is_low, is_high = low is not None and value < low, high is not None and value > high
    if value == other or not (is_low or is_high):
        return
    if other is not None:
        raise wrong(key, value, f"Value must be between {low} and {high} or equal to {other}")
    if low is not None and is_low:
        raise too_small(key, value, low if declared.low_in_kafka is None else declared.low_in_kafka)
    raise wrong(key, value, f"Value must be no more than {high}")


def _check_named(declared: Declaration, value: str) -> None:
    parts = [value]
    if declared.type == "LIST":
        parts = split_list(value)
        _check_repeats(declared.name, parts)
    wrongs = [part for part in parts if part not in declared.choices]
    if wrongs and not wrongs[0] and declared.type == "LIST":
        raise _empty(declared.name)
    if wrongs:
        raise wrong(declared.name, wrongs[0], f"String must be one of: {', '.join(declared.choices)}")


def split_list(text: str) -> list[str]:
    """Return the values of a list; a list without any is empty, one with a comma has two empty values."""
    text = trim(text)
    return [part.strip() for part in text.split(",")] if text else []


def check_list(key: str, parts: list[str]) -> None:
    """Raise `ConfigError` for a list of brokers without repeats that has a value twice, or an empty one."""
    if SETTINGS[key].is_set:
        _check_repeats(key, parts)
        check_empty_values(key, parts)


def _check_repeats(key: str, parts: list[str]) -> None:
    if SETTINGS[key].is_set and len(set(parts)) < len(parts):
        raise ConfigError(f"Configuration '{key}' values must not be duplicated.")


def check_empty_values(key: str, parts: list[str]) -> None:
    if "" in parts:
        raise _empty(key)


def _empty(key: str) -> ConfigError:
    return ConfigError(f"Configuration '{key}' values must not be empty.")


def address_limits(text: str) -> list[tuple[str, int]]:
    """Return the hosts with a limit on connections of their own, as they are written, and the limits.

    Raises `ConfigError`, with Java's message, for a limit that is not of the form host:count.
    """
    limits = []
    for part in filter(None, split_list(text)):
        host, colon, count = part.rpartition(":")
        limit = parse_whole(trim(count))
        if not colon:
            raise ConfigError(
                f"Error parsing configuration property '{ADDRESS_LIMITS}': begin 0, end -1, length {len(part)}"
            )
        if limit is None or not -WHOLE_MAX["INT"] - 1 <= limit <= WHOLE_MAX["INT"]:
            raise ConfigError(f'For input string: "{trim(count)}"')
        limits.append((trim(host), limit))
    return limits


_RETENTION_MS = "log.retention.ms"


def in_milliseconds(settings: Mapping[str, str], served: Set[str]) -> dict[str, str]:
    """Replace minutes and hours of served settings by milliseconds; the shortest unit counts, as in Kafka."""
    found = dict(settings)
    for key in served & LONGER_UNITS.keys():
        for name, factor in LONGER_UNITS[key]:
            text = found.pop(name, None)
            if text is None or key in found:
                continue
            found[key] = str(parse_kind(name, TYPES[name], text) * factor)
    # Kafka keeps records forever for every negative time.
    retention_ms = parse_whole(trim(found.get(_RETENTION_MS, "")))
    if retention_ms is not None and retention_ms < 0:
        found[_RETENTION_MS] = "-1"
    return found


def without_controllers(settings: Mapping[str, str]) -> dict[str, str]:
    """Leave out the listeners of the controller and their settings: brokers here have none."""
    names = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")} - {""}
    prefixes = tuple(f"{LISTENER_PREFIX}{name.lower()}." for name in names)
    found = {key: text for key, text in settings.items() if not key.startswith(prefixes)}
    for key in ("listeners", "advertised.listeners"):
        if key in found:
            entries = [entry.strip() for entry in found[key].split(",")]
            found[key] = ",".join(entry for entry in entries if entry.partition(":")[0].upper() not in names)
    return found


def effectless(settings: Collection[str], served: Collection[str]) -> list[str]:
    """Return the settings that Kafka has and that are not served here."""
    return sorted(key for key in settings if key not in served and key in TYPES)


def setting_of_kafka(key: str) -> str | None:
    """Return Kafka's setting that a key sets, maybe of one listener or mechanism, None for an unknown name."""
    found = listener_key(key)
    if found is None:
        return key if key in TYPES else None
    if found.base in TYPES:
        return found.base
    mechanism, _, rest = found.base.partition(".")
    return rest if rest in TYPES and mechanism == mechanism.lower() else None


def check_usable(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that have no effect here and without which a broker is less protected."""
    for key, text in settings.items():
        value, declared = trim(text), SETTINGS.get(setting_of_kafka(key) or key)
        known = None if declared is None else declared.java
        if known is not None and value not in ("", *known):
            remedy = f"remove it, or set it to {' or '.join(known)}" if known else "remove it"
            raise ConfigError(f"{key}={value!r} protects a broker by Java code, which does not run here: {remedy}")
    if trim(settings.get("config.providers", "")) and any("${" in text for text in settings.values()):
        raise ConfigError(
            "config.providers: variables such as ${file:name:key} are not replaced; write their values instead"
        )
