"""The settings of topics, brokers, groups and client metrics as DescribeConfigs shows them: values and sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from broker_core.broker.dynamic_names import (
    CLIENT_METRICS,
    DEFAULTS_WITHOUT_EFFECT,
    DYNAMIC,
    GROUP_SETTINGS,
    PER_BROKER,
    kind_of,
)
from broker_core.broker.listener_changes import base_of
from broker_core.broker.request_context import RequestContext
from broker_core.broker.stored_settings import ConfigResource
from broker_core.broker.topic_names import check_topic_name
from broker_core.config import TOPIC_SYNONYMS, TopicConfig, is_secret
from broker_core.errors import ErrorCode, KafkaError
from broker_core.kafka_settings import TYPES
from broker_core.setting_checks import as_shown
from broker_core.setting_meanings import MEANINGS
from broker_core.wire import messages as m

_OF_TOPIC, _DYNAMIC, _DYNAMIC_DEFAULT, _STATIC, _DEFAULT, _LOGGER, _CLIENT_METRICS, _OF_GROUP = range(1, 9)
# The broker settings with the defaults of topic settings that brokers here do not have.
_DEFAULTS_OF_BROKERS = {
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "preallocate": "log.preallocate",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
}
_ALWAYS_SET = frozenset({"listeners", "advertised.listeners", "node.id"})
# Kafka's default of these is null; the value in force comes from another setting, or there is none.
_WITHOUT_DEFAULT = frozenset(
    {
        "inter.broker.listener.name",
        "log.retention.ms",
        "log.roll.ms",
        "node.id",
        "advertised.listeners",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)
# Without a type, the content of a store decides; Kafka's default stands for it.
_DEFAULT_STORE_TYPE = "JKS"
_STORE_TYPES = ("ssl.keystore.type", "ssl.truststore.type")
_HOURS = {
    "log.retention.ms": ("log.retention.hours", "168", _DEFAULT),
    "log.roll.ms": ("log.roll.hours", "168", _DEFAULT),
}
# ConfigDef types as the protocol numbers them.
_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
_UNKNOWN_TYPE = 0
# The types of settings that Kafka does not have, by the Python type of the default.
_OWN_TYPES = {bool: "BOOLEAN", str: "STRING", int: "LONG", float: "DOUBLE"}
_Synonym = tuple[str, str | None, int]


@dataclass(frozen=True, slots=True, repr=False)
class Setting:
    """One setting, and where its value comes from: a synonym, its value and its source, the one in force first.

    The type is None for a setting that Kafka does not have; its value may be a secret.
    """

    key: str
    value: str | None
    kind: str | None
    read_only: bool
    synonyms: list[_Synonym]

    def entry(self, *, with_synonyms: bool, with_documentation: bool) -> Any:
        """Return the setting in the form of the response; the values of secrets are left out."""
        form = m.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
        source = self.synonyms[0][2] if self.synonyms else _DEFAULT
        hidden = self.kind is None or is_secret(self.key)
        return form(
            name=self.key,
            value=None if hidden else self.value,
            read_only=self.read_only,
            config_source=source,
            is_default=source == _DEFAULT,
            is_sensitive=hidden,
            synonyms=[
                form.DescribeConfigsSynonym(name=name, value=None if hidden else value, source=source)
                for name, value, source in self.synonyms
            ]
            if with_synonyms
            else [],
            config_type=_UNKNOWN_TYPE if self.kind is None else _TYPES[self.kind],
            documentation=self._meaning() if with_documentation else None,
        )

    def _meaning(self) -> str | None:
        """Return the text of the setting, or of the one that its default comes from; None for one without effect."""
        names = (base_of(self.key), TOPIC_SYNONYMS.get(self.key), *(name for name, _, _ in self.synonyms))
        return next((MEANINGS[name] for name in names if name in MEANINGS), None)


def logger_entry(name: str, level: str) -> Any:
    """Return the level of a logger in the form of the response."""
    return m.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult(
        name=name,
        value=level,
        read_only=False,
        config_source=_LOGGER,
        is_default=False,
        is_sensitive=False,
        synonyms=[],
        config_type=_UNKNOWN_TYPE,
        documentation="",
    )


def settings_of_topic(context: RequestContext, name: str) -> list[Setting]:
    """Return the settings of a topic, as the broker that answers has them."""
    check_topic_name(name)
    topic = context.broker.metadata.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    at_broker = {each.key: each.synonyms for each in settings_of_broker(context)}
    defaults = TopicConfig().as_text()
    found = []
    for key, value in context.broker.logs.topic_config(topic, context.broker.broker_id).as_text().items():
        own: list[_Synonym] = [(key, value, _OF_TOPIC)] if key in topic.config else []
        if key in TOPIC_SYNONYMS:
            inherited = at_broker[TOPIC_SYNONYMS[key]]
        elif key in _DEFAULTS_OF_BROKERS:
            synonym = _DEFAULTS_OF_BROKERS[key]
            inherited = [*_changed(context, synonym), (synonym, defaults[key], _DEFAULT)]
        else:
            inherited = []
        found.append(Setting(key, value, TYPES.get(key, "INT"), read_only=False, synonyms=own + inherited))
    return found


def settings_of_broker(context: RequestContext) -> list[Setting]:
    """Return the settings of the broker, those of single listeners and those without effect here last."""
    config, static = context.broker.config, context.broker.services.settings.static
    specs, defaults = config.keys(), type(config)().as_text()
    values, at_start = config.as_text(), static.as_text()
    host, port = context.addresses[context.broker.broker_id]
    values["node.id"] = at_start["node.id"] = str(context.broker.broker_id)
    factor = "default.replication.factor"
    if values[factor] == defaults[factor]:
        values[factor] = at_start[factor] = defaults[factor] = str(context.broker.controller.default_replication_factor)
    for key in _STORE_TYPES:
        values[key], at_start[key] = values[key] or _DEFAULT_STORE_TYPE, at_start[key] or _DEFAULT_STORE_TYPE
        defaults[key] = _DEFAULT_STORE_TYPE
    for key in ("listeners", "advertised.listeners"):
        # The port is known only after the start, so the client's own listener stands for settings that are not given.
        values[key] = at_start[key] = values[key] or f"{context.listener_name}://{host}:{port}"
    found = []
    for key, value in values.items():
        synonyms = _changed(context, key)
        if at_start[key] != defaults[key] or key in _ALWAYS_SET:
            synonyms.append((key, at_start[key], _STATIC))
        if key not in _WITHOUT_DEFAULT:
            synonyms.append((key, defaults[key], _DEFAULT))
        elif synonyms and key in _HOURS:
            synonyms.append(_HOURS[key])
        shown = None if key in _WITHOUT_DEFAULT and not synonyms else value
        kind = TYPES.get(key, _OWN_TYPES[type(specs[key].default)])
        if key in PER_BROKER and synonyms and synonyms[0][2] == _DYNAMIC:
            # It is not in force: Kafka reads it when it opens a listener.
            shown = as_shown(kind, synonyms[0][1] or "")
        found.append(Setting(key, shown, kind, key not in DYNAMIC, synonyms))
    return found + _other_settings(context, {each.key: each for each in found})


def _other_settings(context: RequestContext, known: Mapping[str, Setting]) -> list[Setting]:
    """Return the settings of single listeners, and those without effect here that were changed."""
    settings = context.broker.services.settings
    at_start_of_listeners = dict(settings.static.listener_overrides)
    changed = {*settings.dynamic(context.broker.broker_id), *settings.dynamic_defaults()}
    extras = []
    for extra in sorted({*changed, *at_start_of_listeners} - known.keys()):
        synonyms = _changed(context, extra)
        if extra in at_start_of_listeners:
            synonyms.append((extra, at_start_of_listeners[extra], _STATIC))
        if extra in DEFAULTS_WITHOUT_EFFECT:
            synonyms.append((extra, DEFAULTS_WITHOUT_EFFECT[extra], _DEFAULT))
        base = base_of(extra)
        value = synonyms[0][1] or ""
        kind = kind_of(base)
        if base == extra and kind is not None:
            value = as_shown(kind, value)
        elif base in known:
            synonyms += known[base].synonyms
        elif base != extra:
            synonyms += _changed(context, base)
            if base in DEFAULTS_WITHOUT_EFFECT:
                synonyms.append((base, DEFAULTS_WITHOUT_EFFECT[base], _DEFAULT))
        # In the order of the sources, as in Kafka.
        extras.append(Setting(extra, value, kind, extra not in DYNAMIC, sorted(synonyms, key=itemgetter(2))))
    return extras


def defaults_of_brokers(context: RequestContext) -> list[Setting]:
    """Return the settings that were changed for all brokers."""
    return [
        Setting(key, value, kind_of(base_of(key)), key not in DYNAMIC, [(key, value, _DYNAMIC_DEFAULT)])
        for key, value in context.broker.services.settings.dynamic_defaults().items()
    ]


def _changed(context: RequestContext, key: str) -> list[_Synonym]:
    """Return the values that a broker setting was changed to while the brokers run."""
    settings = context.broker.services.settings
    sources = (
        (settings.dynamic(context.broker.broker_id), _DYNAMIC),
        (settings.dynamic_defaults(), _DYNAMIC_DEFAULT),
    )
    return [(key, changed[key], source) for changed, source in sources if key in changed]


def settings_of_group(context: RequestContext, name: str) -> list[Setting]:
    """Return the settings of a group; those of share groups and streams groups have no effect here."""
    own = context.broker.metadata.stored.of(ConfigResource.GROUP, name)
    at_broker = {each.key: each.synonyms for each in settings_of_broker(context)}
    found = []
    for key, (kind, default, synonym, _) in GROUP_SETTINGS.items():
        synonyms: list[_Synonym] = [(key, as_shown(kind, own[key]), _OF_GROUP)] if key in own else []
        if synonym in at_broker:
            synonyms += at_broker[synonym]
        else:
            synonyms.append((synonym or key, default, _DEFAULT))
        found.append(Setting(key, synonyms[0][1], kind, read_only=False, synonyms=synonyms))
    return found


def settings_of_client_metrics(context: RequestContext, name: str) -> list[Setting]:
    """Return the settings of a subscription to client metrics."""
    own = context.broker.metadata.stored.of(ConfigResource.CLIENT_METRICS, name)
    shown = {key: as_shown(CLIENT_METRICS[key][0], text) for key, text in own.items()}
    return [
        Setting(
            key,
            shown.get(key, default),
            kind,
            read_only=False,
            synonyms=[(key, shown[key], _CLIENT_METRICS)] if key in shown else [],
        )
        for key, (kind, default) in CLIENT_METRICS.items()
    ]
