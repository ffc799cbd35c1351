"""The levels of the broker's loggers, which the resource BROKER_LOGGER changes (KIP-412).

The loggers are those of this package in Python's `logging`, which all brokers of the process share. `root` is the
logger of the package, so that a change leaves the loggers of other libraries alone.
Levels are not recorded, as in Kafka.
"""

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from broker_core.errors import ErrorCode, KafkaError
from broker_core.wire import messages as m

ROOT: Final = "root"
_PACKAGE: Final = "broker_core"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_SET, _DELETE = range(2)
_OTHER_OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}

_Change: TypeAlias = m.IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig


def levels() -> dict[str, str]:
    names = sorted(
        name
        for name, each in logging.root.manager.loggerDict.items()
        if name.startswith(f"{_PACKAGE}.") and isinstance(each, logging.Logger)
    )
    return {ROOT: _level_of(ROOT), **{name: _level_of(name) for name in names}}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_PACKAGE if name == ROOT else name)


def _level_of(name: str) -> str:
    """Return Kafka's name of the highest level that is not above that of the logger, or of the most verbose level."""
    number = _logger(name).getEffectiveLevel()
    return next((level for level, least in _LEVELS.items() if number >= least), "TRACE")


def check(changes: Iterable[_Change]) -> None:
    """Raise Kafka's error unless all changes are possible."""
    known = levels()
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation in _OTHER_OPERATIONS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{_OTHER_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource",
            )
        if operation not in (_SET, _DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} is not allowed")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == _DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if operation == _SET and change.value not in _LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(_LEVELS))}",
            )


def apply(changes: Iterable[_Change]) -> None:
    """Change the levels; a logger whose level is removed has that of the logger above it."""
    for change in changes:
        _logger(change.name).setLevel(
            _LEVELS[change.value or ""] if change.config_operation == _SET else logging.NOTSET
        )
