"""Checks of arguments whose mistakes would show up far from the call."""

import os
from collections.abc import Mapping

from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.testing.snapshots import Snapshot
from broker_core.types import check_whole


def check_cluster(brokers: int, requests_kept: int, copy_of: object, *, listeners: object, users: object) -> None:
    """Raise TypeError for arguments of `EmbeddedBroker` of another type, and ValueError for a negative count."""
    check_whole("brokers", brokers)
    check_whole("requests_kept", requests_kept)
    if requests_kept < 0:
        raise ValueError(f"requests_kept={requests_kept}: expected 0 or more")
    if not isinstance(copy_of, Snapshot | str | os.PathLike | None):
        raise TypeError(f"copy_of={copy_of!r}; expected a Snapshot or a folder")
    for name, given, example in (
        ("listeners", listeners, {"SECURE": "SASL_SSL"}),
        ("users", users, {"alice": "secret"}),
    ):
        if not isinstance(given, Mapping | None):
            raise TypeError(f"{name}={given!r}; expected a dictionary such as {example}")


def check_topic(name: object, partitions: object) -> None:
    """Raise TypeError, or `KafkaError` with INVALID_PARTITIONS, for a topic that cannot be created."""
    if not isinstance(name, str):
        raise TypeError(f"the topic is {name!r}; expected its name as str")
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise TypeError(f"partitions={partitions!r} of topic {name!r}; expected a number as int")
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"partitions={partitions}: a topic has at least one")


def topics_of(topics: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(topics, Mapping | None):
        raise TypeError(f'topics={topics!r}; expected names with numbers of partitions, such as {{"orders": 4}}')
    found = dict(topics or {})
    for name, partitions in found.items():
        try:
            check_topic(name, partitions)
        except KafkaError as error:
            raise ConfigError(f"topics: {name!r}: {error.message}") from None
    return found


def settings_of(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return settings, whose values are text as in Kafka's files; TypeError for others."""
    if not isinstance(settings, Mapping | None):
        raise TypeError(f'config={settings!r}; expected names with values, such as {{"retention.ms": "1000"}}')
    found = {}
    given: Mapping[str, object] = settings or {}
    for name, value in given.items():
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise TypeError(f"{name}={value!r} is {type(value).__name__}; settings are text: write {text!r}")
        found[name] = value
    return found
