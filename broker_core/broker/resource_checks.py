"""The checks of the settings of groups and of client metrics, with Kafka's errors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.installed import parts
from broker_core.settings.catalog import CLIENT_METRICS, DEFAULTS, GROUP_SETTINGS
from broker_core.settings.values import check_empty_values, parse_kind, split_list, too_small

_SHORTEST_PUSH_MS: Final = 100
_LONGEST_PUSH_MS: Final = 3_600_000
_MATCHED: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_MOST_STANDBY_REPLICAS: Final = 2
_ASSIGNOR: Final = "sticky"
_PREFIX_OF_INTERNAL_TOPICS: Final = "__"
# How a regular expression of Java's is written for Python, as far as one can be valid and the other not.
_AS_PYTHON: Final = (
    (re.compile(r"\(\?<(?=[a-zA-Z])"), "(?P<"),
    (re.compile(r"\(\?[a-zA-Z]*(?:-[a-zA-Z]+)?\)"), ""),
    (re.compile(r"&&"), "&"),
    (re.compile(r"\\[pP](?:\{\w+\}|\w)|\\[zGhHvVRX]"), "x"),
)
_ESCAPED: Final = re.compile(r"\\[pP]\{\w+\}|\\.|\[(?:\\.|[^\]\\])+\]")
_ONLY_PYTHON: Final = re.compile(r"\(\?P|\{(?!\d+(?:,\d*)?\})")


def check_group_settings(name: str, settings: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise Kafka's error unless a group can have all these settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    values = {key: _group_value(key, text) for key, text in settings.items()}
    # Those of streams groups have no effect here.
    known = DEFAULTS | config.as_text()
    for key, value in values.items():
        # The bounds of a setting are in two settings of the broker with its name.
        kind, _, rest = key.partition(".")
        low, high = (known.get(f"group.{kind}.{bound}.{rest}") for bound in ("min", "max"))
        if low is not None and high is not None and not int(low) <= value <= int(high):
            raise ConfigError(f"{key} must be in the range {low} to {high} inclusive.")
    for kind in ("consumer", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values.keys() & {session, heartbeat}:
            session_ms, heartbeat_ms = (
                values.get(key, int(known[f"group.{key}"] or 0)) for key in (session, heartbeat)
            )
            if session_ms <= heartbeat_ms:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def _group_value(key: str, text: str) -> Any:
    """Return the value of a setting; raise Kafka's error if it is wrong by itself."""
    spec = GROUP_SETTINGS.get(key)
    if spec is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
    value = parse_kind(key, spec.type, text)
    if spec.low is not None and value < spec.low:
        raise too_small(key, value, spec.low)
    for each in parts("group_settings"):
        each.check(key, value)
    if key == "errors.deadletterqueue.topic.name" and value.startswith(_PREFIX_OF_INTERNAL_TOPICS):
        raise ConfigError(f"{key}: DLQ topic name must not start with '{_PREFIX_OF_INTERNAL_TOPICS}'")
    if key == "streams.num.standby.replicas" and value > _MOST_STANDBY_REPLICAS:
        raise ConfigError(f"{key} must be less than or equal to {_MOST_STANDBY_REPLICAS}")
    if key == "streams.assignor.name" and value != _ASSIGNOR:
        raise ConfigError(
            f"{key} '{value}' is not a registered task assignor. Registered assignors are: [{_ASSIGNOR}]."
        )
    if key == "streams.rack.aware.assignment.tags":
        tags = split_list(value)
        if len(set(tags)) < len(tags):
            raise ConfigError(f"{key} must not contain duplicate tag keys.")
        check_empty_values(key, tags)
    return value


def check_client_metrics(name: str, settings: Mapping[str, str]) -> None:
    """Raise Kafka's error unless a subscription can have all these settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    values = {}
    for key, text in settings.items():
        if key not in CLIENT_METRICS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        kind = CLIENT_METRICS[key].type
        values[key] = parse_kind(key, kind, text)
        if kind == "LIST":
            check_empty_values(key, split_list(text))
    interval = values.get("interval.ms")
    if interval is not None and not _SHORTEST_PUSH_MS <= interval <= _LONGEST_PUSH_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for interval.ms, interval must be between {_SHORTEST_PUSH_MS} and "
            f"{_LONGEST_PUSH_MS} (1 hour)",
        )
    for pattern in split_list(values.get("match", "")):
        matched, *expressions = (part.strip() for part in pattern.split("="))
        if matched not in _MATCHED or len(expressions) != 1 or not _is_expression(expressions[0]):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def _is_expression(text: str) -> bool:
    """Return whether a text is a regular expression of Java's."""
    if not text or _ONLY_PYTHON.search(_ESCAPED.sub("x", text)):
        return False
    for java, python in _AS_PYTHON:
        text = java.sub(python, text)
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
