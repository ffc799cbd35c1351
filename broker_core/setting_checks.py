"""The checks of values of settings that clients send, with Kafka's messages."""

import re
from typing import Any, Final

from broker_core.errors import ConfigError
from broker_core.java_values import double_text, parse_whole, trim
from broker_core.kafka_settings import HIGHEST_WITHOUT_EFFECT, LOWEST_WITHOUT_EFFECT, TYPES, parse_kind

# The values of settings in the order of Kafka's messages; those of topics have the names of brokers' settings, too.
_NAMED_VALUES: Final = {
    "cleanup.policy": "compact, delete",
    "compression.type": "uncompressed, zstd, lz4, snappy, gzip, producer",
    "message.timestamp.type": "CreateTime, LogAppendTime",
}
_THROTTLED: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_REPLICA: Final = re.compile(r"(?:\d+:\d+)?")
# Kafka refuses smaller segments of clients; the broker and its tests may make them.
SMALLEST_SEGMENT_BYTES: Final = 1_048_576
# Kafka's lowest values where those here differ; messages name Kafka's.
_LOWEST_IN_KAFKA: Final = {
    "segment.bytes": SMALLEST_SEGMENT_BYTES,
    "log.segment.bytes": SMALLEST_SEGMENT_BYTES,
    "max.connection.creation.rate": 0,
}
ADDRESS_LIMITS: Final = "max.connections.per.ip.overrides"
_INT_MAX: Final = 2**31 - 1
# Lists of brokers in which no value may be repeated.
_WITHOUT_REPEATS: Final = (
    "cordoned.log.dirs",
    "listeners",
    "log.cleanup.policy",
    "metric.reporters",
    "sasl.enabled.mechanisms",
    "sasl.kerberos.principal.to.local.rules",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
)


def wrong(key: str, value: object, problem: str) -> ConfigError:
    """Return the error of a value that Kafka's definition of a setting refuses."""
    shown = double_text(value) if isinstance(value, float) else value
    return ConfigError(f"Invalid value {shown} for configuration {key}: {problem}")


def too_small(key: str, value: float, low: float) -> ConfigError:
    """Return the error of a value below the lowest one."""
    return wrong(key, value, f"Value must be at least {low}")


def _too_large(key: str, value: float, high: float) -> ConfigError:
    return wrong(key, value, f"Value must be no more than {high}")


def check_without_effect(key: str, text: str) -> None:
    """Raise `ConfigError`, with Kafka's message, for a wrong value of a setting of Kafka's that has no effect here."""
    check_bounds(key, parse_kind(key, TYPES[key], text))


def check_bounds(key: str, value: Any) -> None:
    """Raise `ConfigError` for a number beyond the bounds of a setting that has no effect here."""
    if key in LOWEST_WITHOUT_EFFECT and value < LOWEST_WITHOUT_EFFECT[key]:
        raise too_small(key, value, LOWEST_WITHOUT_EFFECT[key])
    if key in HIGHEST_WITHOUT_EFFECT and value > HIGHEST_WITHOUT_EFFECT[key]:
        raise _too_large(key, value, HIGHEST_WITHOUT_EFFECT[key])


def check_as_kafka(key: str, text: str, spec: Any) -> None:
    """Raise `ConfigError`, with Kafka's message, for a setting that is wrong by itself; `spec` is its field."""
    value, kind, names = parse_kind(key, TYPES[key], text), TYPES[key], _NAMED_VALUES.get(key.removeprefix("log."))
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(spec, value)
    elif names is not None and (value or not spec.metadata["may_be_empty"]):
        parts = split_list(value) if kind == "LIST" else [value]
        if kind == "LIST":
            _check_repeats(key, parts)
        wrongs = [part for part in parts if part not in spec.metadata["choices"]]
        if wrongs and not wrongs[0] and kind == "LIST":
            raise _empty(key)
        if wrongs:
            raise wrong(key, wrongs[0], f"String must be one of: {names}")
    elif key in _THROTTLED:
        parts = split_list(value)
        if "".join(parts) != "*" and not all(_REPLICA.fullmatch(part) for part in parts):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            problem = f"{key} must be the literal '*' or a list of replicas in the following format: {form}"
            raise wrong(key, f"[{', '.join(parts)}]", problem)


def split_list(text: str) -> list[str]:
    """Return the values of a list; a list without any is empty, one with a comma has two empty values."""
    text = trim(text)
    return [part.strip() for part in text.split(",")] if text else []


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
        if limit is None or not -_INT_MAX - 1 <= limit <= _INT_MAX:
            raise ConfigError(f'For input string: "{trim(count)}"')
        limits.append((trim(host), limit))
    return limits


def check_list(key: str, parts: list[str]) -> None:
    """Raise `ConfigError` for a list of brokers without repeats that has a value twice, or an empty one."""
    if key in _WITHOUT_REPEATS:
        _check_repeats(key, parts)
        check_empty_values(key, parts)


def _check_repeats(key: str, parts: list[str]) -> None:
    if key in _WITHOUT_REPEATS and len(set(parts)) < len(parts):
        raise ConfigError(f"Configuration '{key}' values must not be duplicated.")


def check_empty_values(key: str, parts: list[str]) -> None:
    """Raise `ConfigError` for a list with an empty value."""
    if "" in parts:
        raise _empty(key)


def _empty(key: str) -> ConfigError:
    return ConfigError(f"Configuration '{key}' values must not be empty.")


def _check_number(spec: Any, value: float) -> None:
    key, low, high, other = (spec.metadata[name] for name in ("key", "low", "high", "or_value"))
    if other is not None:
        if value != other and not low <= value <= high:
            raise wrong(key, value, f"Value must be between {low} and {high} or equal to {other}")
    elif low is not None and value < low:
        raise too_small(key, value, _LOWEST_IN_KAFKA.get(key, low))
    elif high is not None and value > high:
        raise _too_large(key, value, high)


def as_shown(kind: str, text: str) -> str:
    """Return a valid value of one of Kafka's types as DescribeConfigs shows it."""
    value = parse_kind("", kind, text)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return double_text(value)
    return ",".join(split_list(text)) if kind == "LIST" else str(value)
