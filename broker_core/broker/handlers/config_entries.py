"""The settings of topics, brokers, groups and client metrics: how DescribeConfigs shows them, and Kafka's checks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from typing import Any, Final, TypeAlias

from broker_core.broker.broker_settings import base_of
from broker_core.broker.metadata_records import ConfigResource
from broker_core.broker.partitions import check_topic_name
from broker_core.broker.request_context import RequestContext
from broker_core.config import BrokerConfig, is_secret
from broker_core.errors import ConfigError, ErrorCode, KafkaError, invalid_request
from broker_core.installed import parts
from broker_core.settings.catalog import (
    CLIENT_METRICS,
    DEFAULTS,
    DYNAMIC,
    GROUP_SETTINGS,
    INTERNAL_DEFAULTS,
    LONGER_UNITS,
    SETTINGS,
    TOPIC_DEFAULTS,
    TYPES,
    kind_of,
)
from broker_core.settings.values import as_shown, check_empty_values, parse_kind, split_list, too_small
from broker_core.types import address_text
from broker_core.wire import messages as m

_OF_TOPIC, _DYNAMIC, _DYNAMIC_DEFAULT, _STATIC, _DEFAULT, _LOGGER, _CLIENT_METRICS, _OF_GROUP = range(1, 9)
# Settings of brokers that stand for each other, the one with most weight first.
_UNITS = [(name, *(longer for longer, _ in units)) for name, units in LONGER_UNITS.items()]
_STAND_FOR_EACH_OTHER = {
    **{name: names for names in _UNITS for name in names},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
_HOUR_MS = 3_600_000
# Internal topics have as many replicas as there are brokers; tools that create a topic like them read these.
_REPLICAS_OF_INTERNAL_TOPICS = (
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
# ConfigDef types as the protocol numbers them.
_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9}
_UNKNOWN_TYPE = 0
ConfigEntry: TypeAlias = m.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
_Synonym = tuple[str, str | None, int]
_Sources = tuple[tuple[int, Mapping[str, str]], ...]


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

    def entry(self, *, with_synonyms: bool, with_documentation: bool) -> ConfigEntry:
        source = self.synonyms[0][2] if self.synonyms else _DEFAULT
        hidden = self.kind is None or is_secret(self.key)
        return ConfigEntry(
            name=self.key,
            value=None if hidden else self.value,
            read_only=self.read_only,
            config_source=source,
            is_default=source == _DEFAULT,
            is_sensitive=hidden,
            synonyms=[
                ConfigEntry.DescribeConfigsSynonym(name=name, value=None if hidden else value, source=source)
                for name, value, source in self.synonyms
            ]
            if with_synonyms
            else [],
            config_type=_UNKNOWN_TYPE if self.kind is None else _TYPES[self.kind],
            documentation=self._meaning() if with_documentation else None,
        )

    def _meaning(self) -> str | None:
        """Return the text of the setting, or of the setting its default comes from; None for an unknown name."""
        names = (base_of(self.key), TOPIC_DEFAULTS.get(self.key), *(name for name, _, _ in self.synonyms))
        found = next((SETTINGS[name].meaning for name in names if name in SETTINGS and SETTINGS[name].meaning), None)
        if found is None and self.kind is not None:
            return f"A setting of Kafka's of type {self.kind} that has no effect here."
        return found


def logger_entry(name: str, level: str) -> ConfigEntry:
    return ConfigEntry(name=name, value=level, config_source=_LOGGER)


def settings_of_topic(context: RequestContext, name: str) -> list[Setting]:
    check_topic_name(name)
    topic = context.broker.metadata.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    sources, served = _sources(context), BrokerConfig.keys()
    found = []
    for key, value in context.broker.logs.topic_config(topic, context.broker.broker_id).as_text().items():
        synonym = TOPIC_DEFAULTS.get(key)
        synonyms = [] if synonym is None else _synonyms(sources, synonym)
        shown: str | None = value
        if key in topic.config:
            synonyms = [(key, value, _OF_TOPIC), *synonyms]
        elif synonym is not None and synonym not in served:
            shown = _of_broker(sources, key)
        found.append(Setting(key, shown, TYPES.get(key, "INT"), read_only=False, synonyms=synonyms))
    return found


def _of_broker(sources: _Sources, key: str) -> str | None:
    value = _setting_of_broker(sources, TOPIC_DEFAULTS[key]).value
    if value is None and key == "flush.ms":
        return _setting_of_broker(sources, "log.flush.scheduler.interval.ms").value
    if value is None:
        return str(int(_setting_of_broker(sources, "log.roll.jitter.hours").value or 0) * _HOUR_MS)
    return value


def settings_of_broker(context: RequestContext) -> list[Setting]:
    """Return the settings of the broker: Kafka's and our brokers' own, then all others that are set."""
    sources = _sources(context)
    described = [*DEFAULTS, *_own_defaults()]
    others = {key for _, settings in sources[:-1] for key in settings}.difference(described)
    return [_setting_of_broker(sources, key) for key in (*described, *sorted(others))]


def _setting_of_broker(sources: _Sources, key: str) -> Setting:
    base, synonyms = base_of(key), _synonyms(sources, key)
    kind = kind_of(base) or (SETTINGS[base].type if base in _own_defaults() else None)
    value = synonyms[0][1] if synonyms else None
    if value is not None and kind is not None and base == key:
        value = as_shown(kind, value)
    return Setting(key, value, kind, key not in DYNAMIC, synonyms)


def _synonyms(sources: _Sources, key: str) -> list[_Synonym]:
    """Return all values of a broker setting, the one in force first."""
    names = _STAND_FOR_EACH_OTHER.get(key) or dict.fromkeys((key, base_of(key)))
    found = [(name, settings[name], source) for source, settings in sources for name in names if name in settings]
    # As in Kafka, a value that was given in another unit shows in that unit only.
    return list(dropwhile(lambda synonym: synonym[0] != key, found))


def _sources(context: RequestContext) -> _Sources:
    """Return the settings of the broker that are not null by their source, the source that counts first."""
    settings, broker_id, controller = (
        context.broker.settings,
        context.broker.broker_id,
        context.broker.controller,
    )
    replicas = dict.fromkeys(_REPLICAS_OF_INTERNAL_TOPICS, str(len(controller.broker_ids)))
    replicas["default.replication.factor"] = str(controller.default_replication_factor)
    return (
        (_DYNAMIC, settings.dynamic(broker_id)),
        (_DYNAMIC_DEFAULT, settings.dynamic_defaults()),
        (_STATIC, _at_start(context, settings.static)),
        (_DEFAULT, {**_defaults(), **replicas}),
    )


def _at_start(context: RequestContext, static: BrokerConfig) -> dict[str, str]:
    """Return the settings that the broker started with, as they were written.

    The ids count from the first broker's id. So do the ports, and 0 is a free one: then the addresses stand for the
    settings.
    """
    broker_id, found = context.broker.broker_id, dict(static.given)
    found["node.id"] = found["broker.id"] = str(broker_id)
    listeners, advertised = found.get("listeners"), found.get("advertised.listeners")
    addresses = ",".join(f"{name}://{address_text(host, port)}" for name, host, port in context.own_addresses())
    if not listeners:
        found["listeners"] = addresses
    places = split_list(advertised or listeners or "")
    if broker_id != static.broker_id or not places or any(place.endswith(":0") for place in places):
        found["advertised.listeners"] = addresses
    return found


@cache
def _own_defaults() -> dict[str, str]:
    return {key: text for key, text in BrokerConfig().as_text().items() if "own" in SETTINGS[key].scope}


@cache
def _defaults() -> dict[str, str]:
    """Return the defaults that are not null: our brokers' own where they have the setting, otherwise Kafka's."""
    served = BrokerConfig().as_text()
    of_kafka = {key: text for key, text in {**INTERNAL_DEFAULTS, **DEFAULTS}.items() if text is not None}
    # One listener at an address of the command line is what no setting means, both there and here.
    found = {key: served.get(key) or text for key, text in of_kafka.items()}
    return {**found, **_own_defaults()}


def defaults_of_brokers(context: RequestContext) -> list[Setting]:
    return [
        Setting(key, value, kind_of(base_of(key)), key not in DYNAMIC, [(key, value, _DYNAMIC_DEFAULT)])
        for key, value in context.broker.settings.dynamic_defaults().items()
    ]


def settings_of_group(context: RequestContext, name: str) -> list[Setting]:
    """Return the settings of a group; settings of streams groups have no effect here."""
    own, sources = context.broker.metadata.stored.of(ConfigResource.GROUP, name), _sources(context)
    found = []
    for key, declared in GROUP_SETTINGS.items():
        value, synonyms = declared.default, [(key, declared.default, _DEFAULT)]
        if declared.default_of is not None:
            of_broker = _setting_of_broker(sources, declared.default_of)
            value, synonyms = of_broker.value, of_broker.synonyms
        if key in own:
            value = as_shown(declared.type, own[key])
            synonyms = [(key, value, _OF_GROUP), *synonyms]
        found.append(Setting(key, value, declared.type, read_only=False, synonyms=synonyms))
    return found


def settings_of_client_metrics(context: RequestContext, name: str) -> list[Setting]:
    own = context.broker.metadata.stored.of(ConfigResource.CLIENT_METRICS, name)
    shown = {key: as_shown(CLIENT_METRICS[key].type, text) for key, text in own.items()}
    return [
        Setting(
            key,
            shown.get(key, declared.default),
            declared.type,
            read_only=False,
            synonyms=[(key, shown[key], _CLIENT_METRICS)] if key in shown else [],
        )
        for key, declared in CLIENT_METRICS.items()
    ]


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
        raise invalid_request("Default group resources are not allowed.")
    values = {key: _group_value(key, text) for key, text in settings.items()}
    # Settings of streams groups have no effect here.
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
        raise invalid_request("Subscription name can't be empty")
    values = {}
    for key, text in settings.items():
        if key not in CLIENT_METRICS:
            raise invalid_request(f"Unknown client metrics configuration: {key}")
        kind = CLIENT_METRICS[key].type
        values[key] = parse_kind(key, kind, text)
        if kind == "LIST":
            check_empty_values(key, split_list(text))
    interval = values.get("interval.ms")
    if interval is not None and not _SHORTEST_PUSH_MS <= interval <= _LONGEST_PUSH_MS:
        raise invalid_request(
            f"Invalid value {interval} for interval.ms, interval must be between {_SHORTEST_PUSH_MS} and "
            f"{_LONGEST_PUSH_MS} (1 hour)"
        )
    for pattern in split_list(values.get("match", "")):
        matched, *expressions = (part.strip() for part in pattern.split("="))
        if matched not in _MATCHED or len(expressions) != 1 or not _is_expression(expressions[0]):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def _is_expression(text: str) -> bool:
    if not text or _ONLY_PYTHON.search(_ESCAPED.sub("x", text)):
        return False
    for java, python in _AS_PYTHON:
        text = java.sub(python, text)
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
