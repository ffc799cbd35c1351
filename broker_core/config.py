"""The settings of brokers, listeners and topics under Kafka's own names, with their types, defaults and bounds.

Files are read by the caller. No text and no error contains the value of a secret setting.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from broker_core.errors import ConfigError
from broker_core.properties import read_properties
from broker_core.settings.catalog import SETTINGS, TOPIC_DEFAULTS, TYPES
from broker_core.settings.fields import Settings, parse_setting
from broker_core.settings.served import BrokerFields, ListenerConfig, TopicFields
from broker_core.settings.values import (
    LISTENER_PREFIX,
    check_as_kafka,
    check_usable,
    effectless,
    in_milliseconds,
    listener_key,
    parse_kind,
    setting_of_kafka,
    too_small,
    without_controllers,
)

logger = logging.getLogger(__name__)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text of a `.properties` file.

    An error gives the number of the line and not its content, which may be part of a key or a password. So a name
    without a value is an error, although Java reads it.
    """
    settings: dict[str, str] = {}
    for each in read_properties(text):
        if not each.separator:
            raise ConfigError(f"line {each.line} is not of the form key=value")
        settings[each.name] = each.value
    return settings


_INTERNAL_SEGMENT = "internal.segment.bytes"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_HANDLER = "sasl.server.callback.handler.class"
_OF_MECHANISMS = (_JAAS, _REAUTH, _HANDLER)


@dataclass(frozen=True, slots=True)
class TopicConfig(TopicFields):
    """The effective settings of a topic; names and defaults are Kafka's topic-level ones."""

    # Kafka's tests set it for small segments. It has neither a default nor bounds, and is shown only where it is set.
    internal_segment_bytes: int | None = None

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed; `ConfigError` names a bad one, or two that conflict.

        The messages are Kafka's.
        """
        if _INTERNAL_SEGMENT in settings:
            size: int = parse_kind(_INTERNAL_SEGMENT, "INT", settings[_INTERNAL_SEGMENT])
            others = {key: text for key, text in settings.items() if key != _INTERNAL_SEGMENT}
            return replace(self.override(others), internal_segment_bytes=size)
        for key, text in settings.items():
            if key not in self.keys():
                raise ConfigError(f"Unknown topic config name: {key}")
            check_as_kafka(key, text)
        changed = Settings.override(self, settings)
        if changed.remote_storage_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage."
            )
        if changed.min_compaction_lag_ms > changed.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({changed.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({changed.max_compaction_lag_ms})"
            )
        return changed

    def as_text(self) -> dict[str, str]:
        """Return every key with its value as Kafka's admin tools print it."""
        # Named: a dataclass with slots is not the class that `super()` remembers.
        texts, size = Settings.as_text(self), self.internal_segment_bytes
        return texts if size is None else {**texts, _INTERNAL_SEGMENT: str(size)}

    @property
    def largest_segment_bytes(self) -> int:
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    def override_by_client(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with a client's changes, to which Kafka's bound of segment.bytes applies."""
        changed = self.override(settings)
        # Kafka refuses smaller segments of clients; the broker and its tests may make them.
        smallest = SETTINGS["segment.bytes"].low_in_kafka
        if "segment.bytes" in settings and smallest is not None and changed.segment_bytes < smallest:
            raise too_small("segment.bytes", changed.segment_bytes, smallest)
        return changed

    def compression_level(self, codec: str) -> int | None:
        """Return the level of batches that the broker compresses with this codec, None for the codec's default."""
        levels = {"lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        if self.compression_gzip_level != -1:
            levels["gzip"] = self.compression_gzip_level
        return levels.get(codec)


@dataclass(frozen=True, slots=True)
class BrokerConfig(BrokerFields):
    """The settings of a broker; names and defaults are Kafka's broker-level ones."""

    # The settings of single listeners, by full key.
    listener_overrides: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # All settings that were given, as they were written, for DescribeConfigs; passwords are among them.
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def override(self, settings: Mapping[str, str]) -> Self:
        """Return these settings with the given ones changed, also settings of single listeners.

        Settings of Kafka's that have nothing to act on here are checked and left out, with a line in the log.
        """
        if not settings:
            return self
        given = {**dict(self.given), **settings}
        check_usable(settings)
        # Before hours become milliseconds: all values are checked, also where a shorter unit overrides them. Settings
        # of topics only are unknown to Kafka's brokers.
        for key in effectless(settings, {*self.keys(), *TopicConfig.keys()}):
            check_as_kafka(key, settings[key])
        settings = without_controllers(in_milliseconds(settings, self.keys().keys()))
        of_no_listener = [key for key in settings if base_key(key) is None and key.startswith(LISTENER_PREFIX)]
        left_out = effectless(settings, self.keys()) + sorted(filter(setting_of_kafka, of_no_listener))
        if left_out:
            logger.info("settings of Kafka that have no effect here: %s", ", ".join(left_out))
        settings = {key: text for key, text in settings.items() if key not in left_out}
        own = {key: text for key, text in settings.items() if not key.startswith(LISTENER_PREFIX)}
        of_listeners = dict(self.listener_overrides)
        of_listeners.update((key, text.strip()) for key, text in settings.items() if key not in own)
        for key in of_listeners:
            if base_key(key) is None:
                raise ConfigError(
                    f"unknown setting {key!r}; listener l may have {LISTENER_PREFIX}l.<key> "
                    f"with one of these keys: {', '.join(sorted(ListenerConfig.keys()))}, "
                    f"{', '.join(f'<mechanism>.{each}' for each in _OF_MECHANISMS)}, the mechanism in lower case"
                )
        changed = Settings.override(self, own)
        return replace(changed, listener_overrides=tuple(sorted(of_listeners.items())), given=tuple(given.items()))

    def of_listener(self, name: str) -> Self:
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): text for key, text in self.listener_overrides if key.startswith(prefix)}
        known = ListenerConfig.keys()
        return Settings.override(self, {key: text for key, text in own.items() if key in known})

    def jaas_config(self, listener: str, mechanism: str) -> tuple[str, str]:
        """Return the key and the text of the setting with a mechanism's users and options; the text may be empty."""
        key, text = self._of_mechanism(listener, mechanism, _JAAS)
        return key, text or ""

    def callback_handler(self, listener: str, mechanism: str) -> str:
        """Return the name of the Java class that checks a mechanism's credentials in Kafka; it may be empty."""
        return self._of_mechanism(listener, mechanism, _HANDLER)[1] or ""

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return after how long clients of this listener and mechanism have to authenticate again, 0 for never."""
        text = self._of_mechanism(listener, mechanism, _REAUTH)[1]
        if text is None:
            return self.of_listener(listener).connections_max_reauth_ms
        return int(parse_setting(_REAUTH, text))

    def _of_mechanism(self, listener: str, mechanism: str, setting: str) -> tuple[str, str | None]:
        key = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{setting}"
        return key, dict(self.listener_overrides).get(key)

    def topic_defaults(self) -> TopicConfig:
        topic, broker = TopicConfig.keys(), self.keys()
        return TopicConfig(
            **{topic[own].name: getattr(self, broker[key].name) for own, key in TOPIC_DEFAULTS.items() if key in broker}
        )


def base_key(key: str) -> str | None:
    """Return the setting that `listener.name.<listener>.<key>` sets, or None if listeners do not have it."""
    found = listener_key(key)
    if found is None:
        return None
    of_listeners = ListenerConfig.keys()
    if found.base in of_listeners:
        return found.base
    mechanism, _, rest = found.base.partition(".")
    # In lower case only, as it is looked up; otherwise a limit on sessions would not be found and not apply.
    is_known = mechanism == mechanism.lower() and mechanism.upper() in _MECHANISMS
    return rest if is_known and rest in _OF_MECHANISMS else None


def is_secret(key: str) -> bool:
    """Return whether the setting's value is secret.

    Keys with the prefix of a listener count also where brokers here do not have the setting.
    """
    found = listener_key(key)
    base = key if found is None else found.base
    return TYPES.get(base) == "PASSWORD" or base.endswith(_JAAS)


def known_settings(text: str) -> dict[str, str]:
    """Return the settings in a broker's properties file that Kafka or brokers here have; raise `ConfigError`."""
    settings = parse_properties(text)
    own = BrokerConfig.keys()
    unknown = sorted(key for key in settings if key not in own and setting_of_kafka(key) is None)
    if unknown:
        logger.warning("unknown settings, which have no effect: %s", ", ".join(unknown))
    if "log.dirs" in settings or "log.dir" in settings:
        logger.warning("log.dirs has no effect: the option --data-dir names the folder of the logs")
    return {key: value for key, value in settings.items() if key not in unknown}
