"""The checks of the settings of groups and of client metrics, with Kafka's errors."""

import re
from collections.abc import Mapping
from typing import Final

from broker_core.broker.dynamic_names import CLIENT_METRICS, GROUP_SETTINGS
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.kafka_settings import parse_kind

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
# The values that a setting may have, and Kafka's message for any other.
_CHOICES: Final = {
    "share.auto.offset.reset": (
        re.compile(r"earliest|latest|by_duration:P.+", re.IGNORECASE),
        "Invalid value `{text}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
        "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    ),
    "share.isolation.level": (
        re.compile(r"read_committed|read_uncommitted", re.IGNORECASE),
        "String must be one of: read_committed, read_uncommitted",
    ),
}


def check_group_settings(name: str, settings: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise Kafka's error unless a group can have all these settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for key, text in settings.items():
        if key not in GROUP_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
        parse_kind(key, GROUP_SETTINGS[key].kind, text)
        if key in _CHOICES and not _CHOICES[key][0].fullmatch(text):
            raise ConfigError(f"Invalid value {text} for configuration {key}: {_CHOICES[key][1].format(text=text)}")
    known = config.as_text()
    for key, text in settings.items():
        # The bounds of a setting are in two settings of the broker with its name.
        kind, _, rest = key.partition(".")
        low, high = (known.get(f"group.{kind}.{bound}.{rest}") for bound in ("min", "max"))
        if low is not None and high is not None and not int(low) <= int(text) <= int(high):
            raise ConfigError(f"{key} must be in the range {low} to {high} inclusive.")
    for kind in ("consumer", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if settings.keys() & {session, heartbeat}:
            session_ms, heartbeat_ms = (int(settings.get(key, known[f"group.{key}"])) for key in (session, heartbeat))
            if session_ms <= heartbeat_ms:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def check_client_metrics(name: str, settings: Mapping[str, str]) -> None:
    """Raise Kafka's error unless a subscription can have all these settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key, text in settings.items():
        if key not in CLIENT_METRICS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        parse_kind(key, CLIENT_METRICS[key][0], text)
    interval = settings.get("interval.ms")
    if interval is not None and not _SHORTEST_PUSH_MS <= int(interval) <= _LONGEST_PUSH_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for interval.ms, interval must be between {_SHORTEST_PUSH_MS} and "
            f"{_LONGEST_PUSH_MS} (1 hour)",
        )
    for pattern in filter(None, settings.get("match", "").split(",")):
        matched, equals, expression = pattern.partition("=")
        if not equals or matched.strip() not in _MATCHED or not _is_expression(expression.strip()):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True
