"""The APIs that describe settings of topics and brokers, and change those of topics."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker_core.broker.authorization import require
from broker_core.broker.request_context import RequestContext
from broker_core.config import BrokerConfig, base_key, is_secret
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.kafka_settings import TYPES
from broker_core.security.acls import CLUSTER_NAME, Operation, ResourceType
from broker_core.wire import messages as m

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_SOURCE_TOPIC, _SOURCE_STATIC_BROKER, _SOURCE_DEFAULT = 1, 4, 5
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
        config, overrides, own_source = _settings(context, resource)
    except KafkaError as error:
        return result(error_code=error.code, error_message=error.message, configs=[], **place)
    wanted = resource.configuration_keys
    entries = [
        _entry(key, value, config.keys()[key].default, own_source if key in overrides else _SOURCE_DEFAULT)
        for key, value in config.as_text().items()
        if wanted is None or key in wanted
    ]
    return result(error_code=0, error_message=None, configs=entries + _listener_entries(config, wanted), **place)


def _entry(key: str, value: str, default: Any, source: int) -> Any:
    kind = "PASSWORD" if is_secret(key) else TYPES.get(base_key(key) or key, _OWN_TYPES[type(default)])
    return m.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult(
        name=key,
        value=None if is_secret(key) else value,
        read_only=source == _SOURCE_STATIC_BROKER,
        config_source=source,
        is_default=source == _SOURCE_DEFAULT,
        is_sensitive=is_secret(key),
        synonyms=[],
        config_type=_TYPES[kind],
        documentation=None,
    )


def _listener_entries(config: Any, wanted: Any) -> list[Any]:
    """Describe the settings of single listeners."""
    if not isinstance(config, BrokerConfig):
        return []
    defaults = {key: spec.default for key, spec in config.keys().items()}
    return [
        _entry(key, value, defaults.get(base_key(key) or "", ""), _SOURCE_STATIC_BROKER)
        for key, value in config.listener_overrides
        if wanted is None or key in wanted
    ]


def _settings(context: RequestContext, resource: Any) -> tuple[Any, Mapping[str, str], int]:
    """Return the settings in force, those that were set, and the source of those."""
    if resource.resource_type == _TOPIC:
        topic = context.broker.metadata.topic(resource.resource_name)
        return context.broker.logs.topic_config(topic), topic.config, _SOURCE_TOPIC
    if resource.resource_type == _BROKER:
        if resource.resource_name not in ("", str(context.broker.broker_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {context.broker.broker_id} or empty string, but received "
                f"{resource.resource_name}",
            )
        config = context.broker.config
        defaults = type(config)().as_text()
        return config, {k: v for k, v in config.as_text().items() if v != defaults[k]}, _SOURCE_STATIC_BROKER
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings in this broker"
    )


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
