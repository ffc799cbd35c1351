"""The APIs that describe settings of topics and brokers, and change those of topics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.broker.authorization import require
from broker_core.broker.metadata import check_topic_name
from broker_core.broker.request_context import RequestContext
from broker_core.config import TOPIC_SYNONYMS, TopicConfig, base_key, is_secret
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.kafka_settings import TYPES
from broker_core.security.acls import CLUSTER_NAME, Operation, ResourceType
from broker_core.wire import messages as m

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_SOURCE_TOPIC, _SOURCE_STATIC_BROKER, _SOURCE_DEFAULT = 1, 4, 5
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
        "ssl.truststore.certificates",
        "ssl.truststore.location",
    }
)
# The settings that Kafka can change while the broker runs, as far as brokers here have them.
_CHANGEABLE = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "group.consumer.assignment.interval.ms",
        "listener.security.protocol.map",
        "listeners",
        "log.cleaner.backoff.ms",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.decompressed.message.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "producer.id.expiration.ms",
        "sasl.enabled.mechanisms",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "transaction.partition.verification.enable",
        "unclean.leader.election.enable",
    }
)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
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
# The types of settings that Kafka does not have, by the Python type of the default.
_OWN_TYPES = {bool: "BOOLEAN", str: "STRING", int: "LONG", float: "DOUBLE"}


def describe_configs(context: RequestContext) -> None:
    """Describe the settings in force and the source of each."""
    context.answer(
        m.DescribeConfigsResponse(results=[_describe(context, resource) for resource in context.body.resources])
    )


def _describe(context: RequestContext, resource: Any) -> Any:
    result = m.DescribeConfigsResponse.DescribeConfigsResult
    place = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        _require(context, Operation.DESCRIBE_CONFIGS, resource)
        if resource.resource_type == _TOPIC:
            settings = _topic_settings(context, resource.resource_name)
        else:
            settings = _broker_settings(context, resource)
    except KafkaError as error:
        return result(error_code=error.code, error_message=error.message, configs=[], **place)
    wanted = resource.configuration_keys
    entries = [
        each.entry(with_synonyms=context.body.include_synonyms)
        for each in settings
        if wanted is None or each.key in wanted
    ]
    return result(error_code=0, error_message="", configs=entries, **place)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting, and where its value comes from: pairs of a synonym and its value, the one in force first."""

    key: str
    value: str | None
    kind: str
    read_only: bool
    synonyms: list[tuple[str, str, int]]

    def entry(self, *, with_synonyms: bool) -> Any:
        """Return the setting in the form of the response; the values of secrets are left out."""
        form = m.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
        source = self.synonyms[0][2] if self.synonyms else _SOURCE_DEFAULT
        hidden = is_secret(self.key)
        return form(
            name=self.key,
            value=None if hidden else self.value,
            read_only=self.read_only,
            config_source=source,
            is_default=source == _SOURCE_DEFAULT,
            is_sensitive=hidden,
            synonyms=[
                form.DescribeConfigsSynonym(name=name, value=None if hidden else value, source=source)
                for name, value, source in self.synonyms
            ]
            if with_synonyms
            else [],
            config_type=_TYPES[self.kind],
            documentation=None,
        )


def _topic_settings(context: RequestContext, name: str) -> list[_Setting]:
    check_topic_name(name)
    topic = context.broker.metadata.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    at_broker = {each.key: each.synonyms for each in _static_settings(context)}
    defaults = TopicConfig().as_text()
    found = []
    for key, value in context.broker.logs.topic_config(topic).as_text().items():
        own = [(key, value, _SOURCE_TOPIC)] if key in topic.config else []
        if key in TOPIC_SYNONYMS:
            inherited = at_broker[TOPIC_SYNONYMS[key]]
        elif key in _DEFAULTS_OF_BROKERS:
            inherited = [(_DEFAULTS_OF_BROKERS[key], defaults[key], _SOURCE_DEFAULT)]
        else:
            inherited = []
        found.append(_Setting(key, value, TYPES[key], read_only=False, synonyms=own + inherited))
    return found


def _broker_settings(context: RequestContext, resource: Any) -> list[_Setting]:
    if resource.resource_type != _BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings in this broker"
        )
    if resource.resource_name not in ("", str(context.broker.broker_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.broker.broker_id} or empty string, but received "
            f"{resource.resource_name}",
        )
    return _static_settings(context)


def _static_settings(context: RequestContext) -> list[_Setting]:
    """Return the settings of the broker, those of single listeners last."""
    config = context.broker.config
    specs, defaults, values = config.keys(), type(config)().as_text(), config.as_text()
    host, port = context.addresses[context.broker.broker_id]
    values["node.id"] = str(context.broker.broker_id)
    for key in ("listeners", "advertised.listeners"):
        # The port is known only after the start, so the client's own listener stands for settings that are not given.
        values[key] = values[key] or f"{context.listener_name}://{host}:{port}"
    found = []
    for key, value in values.items():
        synonyms = [(key, value, _SOURCE_STATIC_BROKER)] if value != defaults[key] or key in _ALWAYS_SET else []
        if key not in _WITHOUT_DEFAULT:
            synonyms.append((key, defaults[key], _SOURCE_DEFAULT))
        shown = None if key in _WITHOUT_DEFAULT and not synonyms else value
        kind = TYPES.get(key, _OWN_TYPES[type(specs[key].default)])
        found.append(_Setting(key, shown, kind, key not in _CHANGEABLE, synonyms))
    for key, value in config.listener_overrides:
        kind = "PASSWORD" if is_secret(key) else TYPES.get(base_key(key) or "", "STRING")
        found.append(_Setting(key, value, kind, read_only=True, synonyms=[(key, value, _SOURCE_STATIC_BROKER)]))
    return found


def alter_configs(context: RequestContext) -> None:
    """Change settings of topics one by one (KIP-339)."""
    resources = context.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    context.answer(
        m.IncrementalAlterConfigsResponse(
            responses=[
                _alter(context, each, is_repeated=times[each.resource_type, each.resource_name] > 1)
                for each in resources
            ]
        )
    )


def _alter(context: RequestContext, resource: Any, *, is_repeated: bool) -> Any:
    code, message = ErrorCode.NONE, None
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_changes(resource.configs)
        _require(context, Operation.ALTER_CONFIGS, resource)
        if resource.resource_type != _TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "only topic settings can be changed while the broker runs; "
                "set broker settings in broker.properties and restart the broker",
            )
        topic = context.broker.metadata.topic(resource.resource_name)
        config = dict(topic.config)
        changed = {change.name for change in resource.configs}
        for change in resource.configs:
            _apply(config, context.broker.logs.topic_config(topic).as_text(), change)
        defaults = context.broker.config.topic_defaults()
        defaults.override(config)
        defaults.override_by_client({key: text for key, text in config.items() if key in changed})
        if not context.body.validate_only:
            context.broker.logs.reconfigure(context.broker.metadata.configure_topic(topic.name, config))
    except ConfigError as error:
        code, message = ErrorCode.INVALID_CONFIG, str(error)
    except KafkaError as error:
        code, message = error.code, error.message
    return m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _check_changes(changes: Any) -> None:
    """Raise INVALID_REQUEST for a key that is named twice, or has no value to set."""
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without = [change.name for change in changes if change.config_operation != _DELETE and change.value is None]
    if without:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without)}")


def _require(context: RequestContext, operation: Operation, resource: Any) -> None:
    """Raise `KafkaError` if the client lacks the right; a broker's settings need rights to the cluster."""
    kinds = {_TOPIC: ResourceType.TOPIC, _GROUP: ResourceType.GROUP, _BROKER: ResourceType.CLUSTER}
    kind = kinds.get(resource.resource_type)
    if kind is not None:
        require(context, operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name)


def _apply(config: dict[str, str], effective: Mapping[str, str], change: Any) -> None:
    operation, key, value = change.config_operation, change.name, change.value
    if operation == _DELETE:
        config.pop(key, None)
    elif operation == _SET:
        config[key] = value
    elif operation in (_APPEND, _SUBTRACT):
        if TYPES.get(key) != "LIST":
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is not a list: nothing can be appended or subtracted")
        old = [part for part in effective[key].split(",") if part]
        parts = value.split(",")
        kept = old + [p for p in parts if p not in old] if operation == _APPEND else [p for p in old if p not in parts]
        config[key] = ",".join(kept)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown config operation {operation}")
