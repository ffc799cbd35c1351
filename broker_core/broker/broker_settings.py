"""The settings in force at each broker: those it started with, and those that were changed while it runs (KIP-226)."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.listener_changes import (
    ChangeCheck,
    check_changes,
    check_value,
    needs_broker_id,
    refused_at_run_time,
)
from broker_core.broker.metadata_records import ALL_BROKERS, ConfigResource, StoredSettings
from broker_core.config import BrokerConfig, base_key
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.java_values import trim
from broker_core.listener_keys import listener_key
from broker_core.settings.catalog import (
    CLUSTER_WIDE,
    DEFAULTS,
    DYNAMIC,
    OF_LISTENERS,
    OF_STORES,
    PER_BROKER,
    SETTINGS,
    kind_of,
)
from broker_core.settings.values import (
    ADDRESS_LIMITS,
    address_limits,
    check_as_kafka,
    check_list,
    parse_kind,
    split_list,
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
        """Return the settings in force at a broker; for `NO_LEADER`, those that all brokers share."""
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

        `is_default` says that they are those of all brokers.
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
                _refuse_any([key for key in settings if needs_broker_id(key)], why)
            _check_together(_changed(self.static, settings), settings)
            check_changes(self.static, {**of_all, **own}, after)
            for check in self._checks:
                check(broker_id, after)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def dynamic(self, broker_id: int) -> Mapping[str, str]:
        return self._stored.of(ConfigResource.BROKER, str(broker_id))

    def dynamic_defaults(self) -> Mapping[str, str]:
        return self._stored.of(ConfigResource.BROKER, ALL_BROKERS)


def _changed(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with those changed that brokers here have; `ConfigError` if they conflict."""
    changed = config.override(_with_effect(changes))
    changed.topic_defaults().override({})
    return changed


def _with_effect(changes: Mapping[str, str]) -> dict[str, str]:
    return {
        key: text
        for key, text in changes.items()
        if (key in _SERVED and key in CLUSTER_WIDE) or base_key(key) in OF_LISTENERS | OF_STORES
    }


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
        check_value(key, text)
    elif kind == "LIST" and key in CLUSTER_WIDE:
        check_list(key, split_list(text))


def _check_together(changed: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raise `ConfigError`, with Kafka's message, for settings that conflict."""
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
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(names))}]")
