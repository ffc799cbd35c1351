"""The settings in force at each broker: those it started with, and those that were changed while it runs (KIP-226)."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from broker_core.broker.dynamic_names import CLUSTER_WIDE, DYNAMIC, OF_LISTENERS, PER_BROKER, kind_of
from broker_core.broker.stored_settings import ALL_BROKERS, ConfigResource, StoredSettings
from broker_core.config import LISTENER_PREFIX, BrokerConfig, base_key, check_as_kafka
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.kafka_settings import TYPES, parse_kind
from broker_core.types import NO_LEADER

_OVERRIDES = re.compile(r"\s*|\s*[^,\s]+:\d+\s*(,\s*[^,\s]+:\d+\s*)*")
logger = logging.getLogger(__name__)


class BrokerSettings:
    """The settings in force; `subscribe` calls back after each change."""

    def __init__(self, static: BrokerConfig, stored: StoredSettings) -> None:
        self.static = static
        self._stored = stored
        self._in_force: dict[int, BrokerConfig] = {}
        self._version = stored.version
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change."""
        self._subscribers.append(callback)

    def changed(self) -> None:
        """Apply a change that was recorded."""
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

    def dynamic(self, broker_id: int) -> Mapping[str, str]:
        """Return the settings that were changed for this broker only."""
        return self._stored.of(ConfigResource.BROKER, str(broker_id))

    def dynamic_defaults(self) -> Mapping[str, str]:
        """Return the settings that were changed for all brokers."""
        return self._stored.of(ConfigResource.BROKER, ALL_BROKERS)


def _changed(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with those changed that brokers here have; `ConfigError` if they conflict."""
    changed = config.override(_with_effect(changes))
    changed.topic_defaults().override({})
    return changed


def _with_effect(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the changes of settings that brokers here have."""
    known = BrokerConfig.keys()
    return {
        key: text
        for key, text in changes.items()
        if (key in known and key in CLUSTER_WIDE) or _listener_key(key) in OF_LISTENERS
    }


def _listener_key(key: str) -> str | None:
    """Return the setting that a key with the prefix of a listener sets, None for other keys."""
    return base_key(key) if key.startswith(LISTENER_PREFIX) else None


def check_broker_settings(static: BrokerConfig, settings: Mapping[str, str], *, is_default: bool) -> None:
    """Raise INVALID_REQUEST, as Kafka does, unless brokers can have all these settings while they run."""
    fixed = [key for key in settings if kind_of(key) is not None and key not in DYNAMIC]
    _refuse_any(fixed, "Cannot update these configs dynamically")
    _refuse_any(
        [key for key in settings if key.startswith("ssl.") and key in PER_BROKER],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    try:
        for key, text in settings.items():
            kind = kind_of(base_key(key) or key)
            if kind is not None:
                parse_kind(key, kind, text)
        for key, text in _with_effect(settings).items():
            if key in TYPES:
                check_as_kafka(key, text, BrokerConfig.keys()[key])
        changed = _changed(static, settings)
        if not _OVERRIDES.fullmatch(changed.max_connections_per_ip_overrides):
            raise ConfigError("max.connections.per.ip.overrides: expected address:count, separated by commas")
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    # Kafka changes these for one broker; a broker here reads the settings of its listeners when it starts.
    _refuse_any(
        [key for key in settings if key in PER_BROKER or _listener_key(key) not in (None, *OF_LISTENERS)],
        "Cannot update these configs at default cluster level, broker id must be specified"
        if is_default
        else "Cannot update these configs dynamically",
    )


def _refuse_any(names: list[str], why: str) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(names))}]")


def default_list(static: BrokerConfig, key: str) -> str:
    """Return the default of a setting that is a list."""
    spec: Any = static.keys().get(key)
    return "" if spec is None else str(spec.default)
