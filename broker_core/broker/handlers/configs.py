"""The APIs that describe, change and list settings of topics, brokers, groups, client metrics and loggers."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal, require
from broker_core.broker.feature_levels import check_min_insync_replicas
from broker_core.broker.handlers.config_entries import (
    Setting,
    check_client_metrics,
    check_group_settings,
    defaults_of_brokers,
    logger_entry,
    settings_of_broker,
    settings_of_client_metrics,
    settings_of_group,
    settings_of_topic,
)
from broker_core.broker.metadata_records import ConfigResource
from broker_core.broker.partitions import check_topic_name
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.config import BrokerConfig
from broker_core.errors import STANDARD_MESSAGES, ConfigError, ErrorCode, KafkaError, invalid_request
from broker_core.java_values import parse_whole
from broker_core.security.acls import CLUSTER_NAME, Operation, ResourceType
from broker_core.settings.catalog import DEFAULTS, SETTINGS, TYPES, kind_of
from broker_core.wire import messages as m
from broker_core.wire.error_responses import Fields, response_to_each
from broker_core.wire.served import Secrets, echo

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LIST_OPERATIONS = {_APPEND: "append", _SUBTRACT: "subtract"}
# The loggers are this package's in Python's `logging`, which all brokers of the process share. `root` is the
# logger of the package, so that a change leaves the loggers of other libraries alone. Levels are not recorded, as in
# Kafka (KIP-412).
_ROOT = "root"
_PACKAGE = "broker_core"
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_FIRST_LIST_OF_ALL = 1
_RIGHTS: Mapping[int, ResourceType] = {
    ConfigResource.TOPIC: ResourceType.TOPIC,
    ConfigResource.GROUP: ResourceType.GROUP,
    ConfigResource.BROKER: ResourceType.CLUSTER,
    ConfigResource.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResource.CLIENT_METRICS: ResourceType.CLUSTER,
}
# What the name of a resource is, where it needs one.
_UNNAMED: Mapping[int, str] = {
    ConfigResource.GROUP: "Group name",
    ConfigResource.CLIENT_METRICS: "Client metrics subscription name",
    ConfigResource.BROKER_LOGGER: "Broker id",
}
_AlterCall: TypeAlias = ApiCall[m.AlterConfigsRequest | m.IncrementalAlterConfigsRequest]
_WantedResource: TypeAlias = m.DescribeConfigsRequest.DescribeConfigsResource
_Described: TypeAlias = m.DescribeConfigsResponse.DescribeConfigsResult
_Replaced: TypeAlias = m.AlterConfigsRequest.AlterConfigsResource
_Changed: TypeAlias = m.IncrementalAlterConfigsRequest.AlterConfigsResource
_ChangedResource: TypeAlias = _Replaced | _Changed
_ChangedSetting: TypeAlias = _Replaced.AlterableConfig | _Changed.AlterableConfig
# What a request changes of the settings of a resource: from those it has to those it will have.
_Change = Callable[[Mapping[str, str]], dict[str, str]]


def describe_configs(context: ApiCall[m.DescribeConfigsRequest]) -> m.DescribeConfigsResponse:
    resources = context.body.resources
    # As in Kafka, one type without settings fails the whole request.
    is_known = all(each.resource_type in _RIGHTS for each in resources)
    return m.DescribeConfigsResponse(results=[_describe(context, each, is_known=is_known) for each in resources])


def _describe(context: ApiCall[m.DescribeConfigsRequest], resource: _WantedResource, *, is_known: bool) -> _Described:
    wanted = resource.configuration_keys
    code, message = ErrorCode.NONE, ""
    try:
        if not is_known:
            raise invalid_request(STANDARD_MESSAGES[ErrorCode.INVALID_REQUEST])
        _require(context, Operation.DESCRIBE_CONFIGS, resource)
        if not resource.resource_name and resource.resource_type in _UNNAMED:
            raise invalid_request(f"{_UNNAMED[resource.resource_type]} must not be empty")
        if resource.resource_type == ConfigResource.BROKER_LOGGER:
            broker_id, name = context.broker.broker_id, resource.resource_name
            if _node_id(name, "Broker") != broker_id:
                raise invalid_request(f"Unexpected broker id, expected {broker_id} but received {name}")
            entries = [logger_entry(name, level) for name, level in _levels().items() if not wanted or name in wanted]
        else:
            entries = [
                each.entry(
                    with_synonyms=context.body.include_synonyms, with_documentation=context.body.include_documentation
                )
                for each in _settings(context, resource)
                if not wanted or each.key in wanted
            ]
    except KafkaError as error:
        code, message, entries = error.code, error.message, []
    return _Described(
        error_code=code,
        error_message=message,
        configs=entries,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _settings(context: RequestContext, resource: _WantedResource) -> list[Setting]:
    name, kind = resource.resource_name, resource.resource_type
    if kind == ConfigResource.TOPIC:
        return settings_of_topic(context, name)
    if kind == ConfigResource.BROKER:
        if not name:
            return defaults_of_brokers(context)
        broker_id = context.broker.broker_id
        if _node_id(name, "Broker") != broker_id:
            raise invalid_request(f"Unexpected broker id, expected {broker_id} or empty string, but received {name}")
        return settings_of_broker(context)
    if kind == ConfigResource.GROUP:
        return settings_of_group(context, name)
    return settings_of_client_metrics(context, name)


def _node_id(name: str, what: str) -> int:
    found = parse_whole(name)
    if found is None or not -(2**31) <= found < 2**31:
        raise invalid_request(f"{what} id must be an integer, but it is: {name}")
    return found


def list_config_resources(context: ApiCall[m.ListConfigResourcesRequest]) -> m.ListConfigResourcesResponse:
    """List the resources that have settings; version 0 lists subscriptions to client metrics only (KIP-1142)."""
    response = m.ListConfigResourcesResponse
    code = refusal(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    kinds = [ConfigResource.CLIENT_METRICS]
    if context.version >= _FIRST_LIST_OF_ALL:
        try:
            kinds = [ConfigResource(kind) for kind in context.body.resource_types] or list(ConfigResource)
        except ValueError:
            code = code or ErrorCode.UNSUPPORTED_VERSION
    found = [] if code else [(kind, name) for kind in dict.fromkeys(kinds) for name in _names(context, kind)]
    return response(
        error_code=code,
        config_resources=[response.ConfigResource(resource_name=name, resource_type=kind) for kind, name in found],
    )


def _names(context: RequestContext, kind: ConfigResource) -> list[str]:
    metadata = context.broker.metadata
    if kind is ConfigResource.TOPIC:
        return list(metadata.topics)
    if kind in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
        return [str(broker_id) for broker_id in context.addresses]
    return [name for stored, name in metadata.stored.configs if stored == kind]


def alter_configs(context: _AlterCall) -> m.ApiMessage:
    """Change settings one by one (KIP-339), or replace all settings of each resource."""
    times = Counter((each.resource_type, each.resource_name) for each in context.body.resources)

    def alter(each: _ChangedResource) -> Fields:
        if times[each.resource_type, each.resource_name] > 1:
            raise invalid_request("Each resource must appear at most once.")
        _check_changes(each.configs)
        _require(context, Operation.ALTER_CONFIGS, each)
        try:
            _alter(context, each)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return {}

    return response_to_each(context.request, alter)


def _check_changes(changes: Sequence[_ChangedSetting]) -> None:
    """Raise INVALID_REQUEST for a key that is named twice, or has no value to set."""
    if len({change.name for change in changes}) < len(changes):
        raise invalid_request("Error due to duplicate config keys")
    without = [
        change.name
        for change in changes
        if change.value is None
        and not (isinstance(change, _Changed.AlterableConfig) and change.config_operation == _DELETE)
    ]
    if without:
        raise invalid_request(f"Null value not supported for : {', '.join(without)}")


def _alter(context: _AlterCall, resource: _ChangedResource) -> None:
    kind = resource.resource_type

    def change(settings: Mapping[str, str]) -> dict[str, str]:
        if isinstance(resource, _Replaced):
            return {each.name: each.value or "" for each in resource.configs}
        changed = dict(settings)
        for each in resource.configs:
            _apply(context, changed, resource, each)
        return changed

    if kind == ConfigResource.TOPIC:
        _alter_topic(context, resource, change)
    elif kind == ConfigResource.BROKER:
        _alter_broker(context, resource, change)
    elif kind == ConfigResource.BROKER_LOGGER and isinstance(resource, _Changed):
        if _node_id(resource.resource_name, "Node") != context.broker.broker_id:
            raise invalid_request(
                f"Unexpected node id. Expected {context.broker.broker_id}, but received {resource.resource_name}"
            )
        _check_levels(resource.configs)
        if not context.body.validate_only:
            _apply_levels(resource.configs)
    elif kind in (ConfigResource.GROUP, ConfigResource.CLIENT_METRICS):
        settings = change(context.broker.metadata.stored.of(kind, resource.resource_name))
        if kind == ConfigResource.GROUP:
            check_group_settings(resource.resource_name, settings, context.broker.config)
        else:
            check_client_metrics(resource.resource_name, settings)
        _store(context, kind, resource.resource_name, settings)
    else:
        raise invalid_request(f"Unknown resource type {kind}")


def _alter_topic(context: _AlterCall, resource: _ChangedResource, change: _Change) -> None:
    if not resource.resource_name:
        raise invalid_request("Default topic resources are not allowed.")
    check_topic_name(resource.resource_name)
    topic = context.broker.metadata.topic(resource.resource_name)
    config = change(topic.config)
    changed = {each.name for each in resource.configs}
    defaults = context.broker.config.topic_defaults()
    defaults.override(config)
    defaults.override_by_client({key: text for key, text in config.items() if key in changed})
    if not context.body.validate_only:
        context.broker.logs.reconfigure(context.broker.metadata.configure_topic(topic.name, config))


def _alter_broker(context: _AlterCall, resource: _ChangedResource, change: _Change) -> None:
    """Change the settings of the broker, or with an empty name of all brokers (KIP-226)."""
    name: str = resource.resource_name
    settings, broker_id = context.broker.settings, context.broker.broker_id
    if name and _node_id(name, "Node") != broker_id:
        raise invalid_request(f"Unexpected broker id, expected {broker_id}, but received {name}")
    # The id in its shortest form, under which it is looked up.
    name = name and str(broker_id)
    changed = change(context.broker.metadata.stored.of(ConfigResource.BROKER, name))
    settings.check(broker_id, changed, is_default=not name)
    check_min_insync_replicas(context.broker.metadata.features, name, changed, {each.name for each in resource.configs})
    _store(context, ConfigResource.BROKER, name, changed)
    if not context.body.validate_only:
        settings.changed()


def _store(context: _AlterCall, kind: int, name: str, settings: Mapping[str, str]) -> None:
    if not context.body.validate_only:
        context.broker.metadata.configure(kind, name, settings)


def _apply(
    context: RequestContext, config: dict[str, str], resource: _ChangedResource, change: _Changed.AlterableConfig
) -> None:
    operation, key, value = change.config_operation, change.name, change.value or ""
    if operation == _DELETE:
        config.pop(key, None)
    elif operation == _SET:
        config[key] = value
    elif operation in _LIST_OPERATIONS:
        _check_list(resource.resource_type, operation, key)
        old = [part for part in _present(context, config, resource, key).split(",") if part]
        # Java's `split` omits empty parts at the end.
        parts = [] if value and not value.strip(",") else value.rstrip(",").split(",")
        kept = old + [p for p in parts if p not in old] if operation == _APPEND else [p for p in old if p not in parts]
        config[key] = ",".join(kept)
    else:
        raise invalid_request(f"Unknown operations type {operation}")


def _check_list(resource_type: int, operation: int, key: str) -> None:
    name = _LIST_OPERATIONS[operation]
    if resource_type == ConfigResource.BROKER:
        if kind_of(key) is None or "dynamic" in SETTINGS[key].scope:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {key}")
        if kind_of(key) != "LIST":
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {name} is not allowed for config key: {key}")
    elif resource_type != ConfigResource.TOPIC or TYPES.get(key) != "LIST":
        # As in Kafka, lists of groups and of client metrics are set as a whole.
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {name.upper()} to key {key} because its type is not LIST.")


def _present(context: RequestContext, config: Mapping[str, str], resource: _ChangedResource, key: str) -> str:
    """Return the list that values are appended to: the list that is set, or for a broker the setting's default."""
    if key in config:
        return config[key]
    if resource.resource_type == ConfigResource.BROKER:
        return BrokerConfig().as_text().get(key, DEFAULTS.get(key) or "")
    return context.broker.config.topic_defaults().override(config).as_text()[key]


def _require(context: RequestContext, operation: Operation, resource: _WantedResource | _ChangedResource) -> None:
    """Raise `KafkaError` if the client lacks the right; all but topics and groups need rights to the cluster."""
    kind = _RIGHTS.get(resource.resource_type)
    if kind is not None:
        require(context, operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name)


def _levels() -> dict[str, str]:
    names = sorted(
        name
        for name, each in logging.root.manager.loggerDict.items()
        if name.startswith(f"{_PACKAGE}.") and isinstance(each, logging.Logger)
    )
    return {_ROOT: _level_of(_ROOT), **{name: _level_of(name) for name in names}}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_PACKAGE if name == _ROOT else name)


def _level_of(name: str) -> str:
    """Return Kafka's name of the highest level that is not above the logger's, or of the most verbose level."""
    number = _logger(name).getEffectiveLevel()
    return next((level for level, least in _LEVELS.items() if number >= least), "TRACE")


def _check_levels(changes: Iterable[_Changed.AlterableConfig]) -> None:
    known = _levels()
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation in _LIST_OPERATIONS:
            raise invalid_request(
                f"{_LIST_OPERATIONS[operation].upper()} operation is not allowed for the BROKER_LOGGER resource"
            )
        if operation not in (_SET, _DELETE):
            raise invalid_request(f"Unknown operation type {operation} is not allowed")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == _DELETE and name == _ROOT:
            raise invalid_request("Removing the log level of the root logger is not allowed")
        if operation == _SET and change.value not in _LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(_LEVELS))}",
            )


def _apply_levels(changes: Iterable[_Changed.AlterableConfig]) -> None:
    """Change the levels; a logger whose level is removed has the level of the logger above it."""
    for change in changes:
        _logger(change.name).setLevel(
            _LEVELS[change.value or ""] if change.config_operation == _SET else logging.NOTSET
        )


_ALTERING = ("ALTER_CONFIGS TOPIC", "ALTER_CONFIGS CLUSTER", "ALTER_CONFIGS GROUP")
APIS = (
    api(
        m.DescribeConfigsRequest,
        (1, 4),
        describe_configs,
        "DESCRIBE_CONFIGS TOPIC",
        "DESCRIBE_CONFIGS CLUSTER",
        "DESCRIBE_CONFIGS GROUP",
        echoes=echo("resources", "results"),
    ),
    api(
        m.AlterConfigsRequest,
        (0, 2),
        alter_configs,
        *_ALTERING,
        echoes=echo("resources", "responses"),
        secrets=Secrets.OF_BROKERS,
    ),
    api(
        m.IncrementalAlterConfigsRequest,
        (0, 1),
        alter_configs,
        *_ALTERING,
        echoes=echo("resources", "responses"),
        secrets=Secrets.OF_BROKERS,
    ),
    api(m.ListConfigResourcesRequest, (0, 1), list_config_resources, "DESCRIBE_CONFIGS CLUSTER"),
)
