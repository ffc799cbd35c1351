"""The APIs that create and delete topics, and add partitions."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker_core.broker.authorization import is_allowed, require
from broker_core.broker.request_context import RequestContext
from broker_core.errors import ConfigError, ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from broker_core.wire import messages as m

_DEFAULT_SOURCE = 5
_TOPIC_SOURCE = 1
# Kafka's controller refuses more partitions in one operation.
_MAX_PARTITIONS = 10_000


def create_topics(context: RequestContext) -> None:
    """Create topics, each independently of the others."""
    names = Counter(topic.name for topic in context.body.topics)
    context.answer(
        m.CreateTopicsResponse(
            topics=[_create(context, topic, repeated=names[topic.name] > 1) for topic in context.body.topics]
        )
    )


def _create(context: RequestContext, wanted: Any, *, repeated: bool) -> Any:
    result = m.CreateTopicsResponse.CreatableTopicResult
    broker = context.broker
    try:
        if repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{wanted.name}' is named more than once.")
        if wanted.name != CLUSTER_METADATA_TOPIC and not is_allowed(context, Operation.CREATE, ResourceType.CLUSTER):
            require(context, Operation.CREATE, ResourceType.TOPIC, wanted.name)
        config = {entry.name: entry.value for entry in wanted.configs or ()}
        if None in config.values():
            raise KafkaError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs")
        if wanted.name in INTERNAL_TOPICS and wanted.name not in broker.metadata.topics:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{wanted.name} is internal: the broker creates it when it is first needed"
            )
        count, leaders = _partitions(context, wanted)
        try:
            broker.config.topic_defaults().override(config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        broker.metadata.check_new_topic(wanted.name)
        topic_id = m.NULL_UUID
        if not context.body.validate_only:
            topic_id = broker.controller.create_topic(wanted.name, count, config, leaders).topic_id
    except KafkaError as error:
        return result(
            name=wanted.name, topic_id=m.NULL_UUID, error_code=error.code, error_message=error.message, configs=None
        )
    return result(name=wanted.name, topic_id=topic_id, error_code=0, **_settings(context, wanted.name, count, config))


def _settings(context: RequestContext, name: str, partition_count: int, config: Mapping[str, str]) -> dict[str, Any]:
    """Describe the new topic's settings, unless the client may create the topic but not describe its settings."""
    if not is_allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return {
            "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": [],
        }
    form = m.CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs
    effective = context.broker.config.topic_defaults().override(config).as_text()
    return {
        "num_partitions": partition_count,
        "replication_factor": 1,
        "configs": [
            form(
                name=key,
                value=value,
                read_only=False,
                is_sensitive=False,
                config_source=_TOPIC_SOURCE if key in config else _DEFAULT_SOURCE,
            )
            for key, value in effective.items()
        ],
    }


def _partitions(context: RequestContext, wanted: Any) -> tuple[int, list[int] | None]:
    """Return the number of partitions and, if the request assigns replicas, their leaders."""
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "a topic with a replica assignment must not set partition count or replication factor",
            )
        leaders = _assigned_leaders(context, wanted.assignments)
        return len(leaders), leaders
    count = context.broker.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    _check_count(count)
    # The brokers of a cluster share the logs, so any replication factor up to their number is accepted.
    brokers = len(context.broker.controller.broker_ids)
    if wanted.replication_factor != -1 and not 0 < wanted.replication_factor <= brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {wanted.replication_factor} time(s): only {brokers} broker(s) are "
            "registered.",
        )
    return count, None


def _check_count(count: int) -> None:
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > _MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions: {count} is more than {_MAX_PARTITIONS}",
        )


def _assigned_leaders(context: RequestContext, assignments: Any) -> list[int]:
    replicas = {entry.partition_index: list(entry.broker_ids) for entry in assignments}
    if sorted(replicas) != list(range(len(assignments))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without gaps")
    known = set(context.broker.controller.broker_ids)
    for index, brokers in replicas.items():
        if not brokers or len(set(brokers)) < len(brokers) or not known.issuperset(brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} is assigned to {brokers}; the brokers are {sorted(known)}",
            )
    return [replicas[index][0] for index in range(len(replicas))]


def delete_topics(context: RequestContext) -> None:
    """Delete topics by name, or by id from version 6 on."""
    if context.version >= 6:
        results = [_delete(context, topic.name, topic.topic_id) for topic in context.body.topics]
    else:
        results = [_delete(context, name, m.NULL_UUID) for name in context.body.topic_names]
    context.answer(m.DeleteTopicsResponse(responses=results))


def _delete(context: RequestContext, name: str | None, topic_id: Any) -> Any:
    result = m.DeleteTopicsResponse.DeletableTopicResult
    metadata = context.broker.metadata
    try:
        is_trusted = is_allowed(context, Operation.DELETE, ResourceType.CLUSTER)
        wanted = metadata.topic_by_id(topic_id).name if name is None else name
        # Checked first: the response must not reveal the topic's name, or whether it exists.
        if not is_trusted:
            require(context, Operation.DESCRIBE, ResourceType.TOPIC, wanted)
        topic = metadata.topic(wanted)
        name = topic.name
        if not is_trusted:
            require(context, Operation.DELETE, ResourceType.TOPIC, name)
        topic_id = topic.topic_id
        if not context.broker.config.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if topic.name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal and cannot be deleted")
        context.broker.controller.delete_topic(topic.name)
    except KafkaError as error:
        return result(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
    return result(name=name, topic_id=topic_id, error_code=0)


def create_partitions(context: RequestContext) -> None:
    """Add partitions to topics."""
    results = []
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult
    for wanted in context.body.topics:
        try:
            require(context, Operation.ALTER, ResourceType.TOPIC, wanted.name)
            topic = context.broker.metadata.topic(wanted.name)
            if topic.is_internal:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal: its hashing would change")
            _check_count(wanted.count)
            if context.body.validate_only and wanted.count > len(topic.partitions):
                results.append(result(name=wanted.name, error_code=0))
                continue
            context.broker.controller.add_partitions(wanted.name, wanted.count)
            results.append(result(name=wanted.name, error_code=0))
        except KafkaError as error:
            results.append(result(name=wanted.name, error_code=error.code, error_message=error.message))
    context.answer(m.CreatePartitionsResponse(results=results))
