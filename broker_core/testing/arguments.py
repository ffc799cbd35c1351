"""Checks of arguments whose mistakes would show up far from the call."""

import os
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.controller import MOST_RECORDS
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.testing.snapshots import Snapshot
from broker_core.types import check_whole

MOST_PARTITIONS: Final = MOST_RECORDS - 1
_WHOLE: Final = ("brokers", "requests_kept", "port")
# Each with the types that it may have besides None, and what is expected.
_EXPECTED: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "copy_of": ((Snapshot, str, os.PathLike), "a Snapshot or a folder"),
    "data_dir": ((str, os.PathLike), "a folder"),
    "host": ((str,), "an address such as '127.0.0.1'"),
    "tls": ((ssl.SSLContext,), "an ssl.SSLContext"),
    "token_validator": ((Callable,), "a function"),  # type: ignore[dict-item]
    "listeners": ((Mapping,), "a dictionary such as {'SECURE': 'SASL_SSL'}"),
    "users": ((Mapping,), "a dictionary such as {'alice': 'secret'}"),
}


def check_cluster(**arguments: object) -> None:
    """Raise TypeError for arguments of `EmbeddedBroker` of another type, ValueError for a number or text it cannot use.

    None is refused only for `host`, which has another default.
    """
    for name in _WHOLE:
        check_whole(name, arguments[name])
    requests_kept = arguments["requests_kept"]
    if isinstance(requests_kept, int) and requests_kept < 0:
        raise ValueError(f"requests_kept={requests_kept}: expected 0 or more")
    for name, (types, expected) in _EXPECTED.items():
        given = arguments[name]
        if not isinstance(given, types) and (given is not None or name == "host"):
            raise TypeError(f"{name}={given!r}; expected {expected}")
        if given == "":
            raise ValueError(f"{name}={given!r} is empty; expected {expected}")
        for key, value in given.items() if isinstance(given, Mapping) else ():
            if not (isinstance(key, str) and isinstance(value, str)):
                # The value may be a password.
                raise TypeError(f"{name} has {key!r} with a value of type {type(value).__name__}; expected {expected}")


def check_topic(name: object, partitions: object) -> None:
    """Raise TypeError, or `KafkaError`, for a topic that cannot be created."""
    if not isinstance(name, str):
        raise TypeError(f"the topic is {name!r}; expected its name as str")
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise TypeError(f"partitions={partitions!r} of topic {name!r}; expected a number as int")
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"partitions={partitions}: a topic has at least one")
    if partitions > MOST_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"partitions={partitions}: a topic is created with {MOST_PARTITIONS} at most"
        )


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
        if not isinstance(name, str):
            raise TypeError(f"config has {name!r}: {value!r}; expected names of settings as str")
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise TypeError(f"{name}={value!r} is {type(value).__name__}; settings are text: write {text!r}")
        found[name] = value
    return found
