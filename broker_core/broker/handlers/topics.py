"""The APIs that create and delete topics, and add partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, refusal, require
from broker_core.broker.controller import MOST_RECORDS, TOO_LARGE, Controller
from broker_core.broker.limits import Throttled
from broker_core.broker.partitions import replica_problem
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import STANDARD_MESSAGES, ConfigError, ErrorCode, KafkaError, invalid_request
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from broker_core.wire import messages as m
from broker_core.wire.served import echo

_NewTopic: TypeAlias = m.CreateTopicsRequest.CreatableTopic
_Created: TypeAlias = m.CreateTopicsResponse.CreatableTopicResult
_Enlarged: TypeAlias = m.CreatePartitionsRequest.CreatePartitionsTopic
_Deleted: TypeAlias = m.DeleteTopicsResponse.DeletableTopicResult
_DEFAULT_SOURCE = 5
# The first versions whose clients know THROTTLING_QUOTA_EXCEEDED.
_STRICT_CREATION, _STRICT_ADDITION, _STRICT_DELETION = 6, 3, 5
_TOPIC_SOURCE = 1
_TOO_MANY = "Excessively large number of {}partitions per request."
_UNEXPLAINED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_REPEATED_NAME = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_REPEATED_ID = (ErrorCode.INVALID_REQUEST, "Duplicate topic id.")


def create_topics(context: ApiCall[m.CreateTopicsRequest]) -> m.CreateTopicsResponse:
    """Create topics, each independently of the others."""
    if context.body.timeout_ms <= 0:
        names = dict.fromkeys(topic.name for topic in context.body.topics)
        return m.CreateTopicsResponse(topics=[_refused(name, _too_late()) for name in names])
    named = Counter(topic.name for topic in context.body.topics)
    wanted = [topic for topic in context.body.topics if named[topic.name] == 1]
    if problem := _excess(context, [topic for topic in wanted if not _forbidden(context, topic.name)]):
        excess = KafkaError(ErrorCode.POLICY_VIOLATION, problem)
        return m.CreateTopicsResponse(topics=[_refused(topic.name, excess) for topic in context.body.topics])
    created = [_create(context, topic) for topic in wanted]
    repeated = [_refused(name, KafkaError(*_REPEATED_NAME)) for name, times in named.items() if times > 1]
    return m.CreateTopicsResponse(topics=created + repeated)


def _misassigned(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _too_late() -> KafkaError:
    """Return the error for a request without time: as in Kafka, it ends before it begins."""
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _forbidden(context: RequestContext, name: str) -> bool:
    if name == CLUSTER_METADATA_TOPIC or is_allowed(context, Operation.CREATE, ResourceType.CLUSTER):
        return False
    return bool(refusal(context, Operation.CREATE, ResourceType.TOPIC, name))


def _excess(context: RequestContext, topics: Sequence[_NewTopic]) -> str:
    """Return why the topics are too large for one request, which then fails as a whole; empty if they are not."""
    partitions = sum(len(each.assignments) or max(_wanted_count(context, each), 0) for each in topics)
    if partitions > MOST_RECORDS:
        return _TOO_MANY.format("")
    # The plans, which take time, matter only near the limit.
    is_near = partitions + sum(1 + len(each.configs or ()) for each in topics) > MOST_RECORDS
    return TOO_LARGE if is_near and sum(_records(context, each) for each in topics) > MOST_RECORDS else ""


def _wanted_count(context: RequestContext, wanted: _NewTopic) -> int:
    return context.broker.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions


def _records(context: RequestContext, wanted: _NewTopic) -> int:
    """Return how many records create the topic, none if it is refused."""
    try:
        plan = _plan(context, wanted)
    except KafkaError:
        return 0
    return 1 + plan.partitions + len(plan.config)


class _Plan(NamedTuple):
    """A topic that can be created."""

    partitions: int
    factor: int
    replicas: list[list[int]] | None
    config: dict[str, str]


def _plan(context: RequestContext, wanted: _NewTopic) -> _Plan:
    broker = context.broker
    config = {entry.name: entry.value or "" for entry in wanted.configs or ()}
    if without := ", ".join(entry.name for entry in wanted.configs or () if entry.value is None):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {without}")
    if wanted.name in INTERNAL_TOPICS and wanted.name not in broker.metadata.topics:
        raise invalid_request(f"{wanted.name} is internal: the broker creates it when it is first needed")
    count, factor, replicas = _partitions(context, wanted)
    try:
        broker.config.topic_defaults().override_by_client(config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    broker.metadata.check_new_topic(wanted.name)
    return _Plan(count, factor, replicas, config)


def _create(context: ApiCall[m.CreateTopicsRequest], wanted: _NewTopic) -> _Created:
    broker = context.broker
    try:
        if _forbidden(context, wanted.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        count, factor, replicas, config = _plan(context, wanted)
        _count_mutations(context, count, _STRICT_CREATION)
        # As in Kafka, a topic that is only validated has an id too.
        topic_id = broker.controller.new_uuid()
        if not context.body.validate_only:
            replicas = replicas or broker.metadata.place(count, factor)
            topic_id = broker.controller.create_topic(wanted.name, count, config, replicas).topic_id
    except KafkaError as error:
        return _refused(wanted.name, error)
    created = _Created(
        name=wanted.name, topic_id=topic_id, error_message=None, num_partitions=count, replication_factor=factor
    )
    _describe_settings(context, created, config)
    return created


def _count_mutations(context: RequestContext, partitions: int, strict_version: int) -> None:
    """Count created or deleted partitions; raise THROTTLING_QUOTA_EXCEEDED for a new client without quota (KIP-599)."""
    try:
        throttle_ms = context.broker.quotas.mutated(
            context.principal.name,
            context.client_id,
            partitions,
            context.now_ms,
            is_strict=context.version >= strict_version,
        )
    except Throttled as error:
        context.throttle_ms = max(context.throttle_ms, error.throttle_ms)
        raise
    context.throttle_ms = max(context.throttle_ms, throttle_ms)


def _refused(name: str, error: KafkaError) -> _Created:
    return _Created(name=name, topic_id=m.NULL_UUID, error_code=error.code, error_message=error.message or None)


def _describe_settings(context: RequestContext, created: _Created, config: Mapping[str, str]) -> None:
    if not is_allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
        created.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        created.num_partitions = created.replication_factor = -1
        created.configs = []
        return
    created.configs = [
        _Created.CreatableTopicConfigs(
            name=key, value=value, config_source=_TOPIC_SOURCE if key in config else _DEFAULT_SOURCE
        )
        for key, value in context.broker.config.topic_defaults().override(config).as_text().items()
    ]


def _partitions(context: RequestContext, wanted: _NewTopic) -> tuple[int, int, list[list[int]] | None]:
    """Return the numbers of partitions and replicas, and the replicas if the request assigns them."""
    if wanted.assignments:
        for value, what in (
            (wanted.replication_factor, "replication factor"),
            (wanted.num_partitions, "numPartitions"),
        ):
            if value != -1:
                raise invalid_request(f"A manual partition assignment was specified, but {what} was not set to -1.")
        assigned = _assigned(context, wanted.assignments)
        return len(assigned), len(assigned[0]), assigned
    count = _wanted_count(context, wanted)
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    controller, factor = context.broker.controller, wanted.replication_factor
    if factor == 0 or factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor == -1:
        factor = controller.default_replication_factor
    controller.check_replication_factor(factor)
    return count, factor, None


def _assigned(context: RequestContext, assignments: Iterable[_NewTopic.CreatableReplicaAssignment]) -> list[list[int]]:
    """Return the replicas of each partition of a new topic (rule J.5/7)."""
    replicas: dict[int, list[int]] = {}
    for entry in assignments:
        if entry.partition_index in replicas:
            raise _misassigned(f"Found multiple manual partition assignments for partition {entry.partition_index}")
        replicas[entry.partition_index] = list(entry.broker_ids)
    _check_assignments(context.broker.controller, replicas, len(next(iter(replicas.values()))))
    if sorted(replicas) != list(range(len(replicas))):
        raise _misassigned("partitions should be a consecutive 0-based integer sequence")
    return [replicas[index] for index in sorted(replicas)]


def _check_assignments(controller: Controller, assignments: Mapping[int, list[int]], factor: int) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT as Kafka's controller does; `assignments` are the replicas by partition."""
    for index, replicas in assignments.items():
        problem = replica_problem(replicas, controller.broker_ids)
        if problem is None and len(replicas) != factor:
            problem = (
                f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
                f"which have {factor} replica(s)"
            )
        if problem is not None:
            raise _misassigned(f"The manual partition assignment includes {problem}.")
        if not {*replicas} & {*controller.addresses}:
            raise _misassigned(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )


def delete_topics(context: ApiCall[m.DeleteTopicsRequest]) -> m.DeleteTopicsResponse:
    """Delete topics by name, or by id from version 6 on."""
    is_too_late = context.body.timeout_ms <= 0
    if context.version >= 6:
        wanted = [(topic.name, topic.topic_id or m.NULL_UUID) for topic in context.body.topics]
    else:
        wanted = [(name, m.NULL_UUID) for name in context.body.topic_names]
    times = Counter(wanted)
    names = context.broker.metadata.names
    doubled = {name for name, _ in times} & {names.get(topic_id) for name, topic_id in times if name is None}
    results = []
    for (name, topic_id), count in times.items():
        if name is None and topic_id == m.NULL_UUID:
            error = invalid_request("Neither topic name nor id were specified.")
        elif name is not None and topic_id != m.NULL_UUID:
            error = invalid_request("You may not specify both topic name and topic id.")
        elif is_too_late:
            error = _too_late()
        elif count > 1:
            error = KafkaError(*(_REPEATED_ID if name is None else _REPEATED_NAME))
        else:
            is_doubled = (name or names.get(topic_id)) in doubled
            deleted = _delete(context, name, topic_id, is_doubled=is_doubled)
            # As in Kafka, a topic named both by name and by id is answered once, under its name.
            if name is not None or deleted.error_code != ErrorCode.INVALID_REQUEST or not is_doubled:
                results.append(deleted)
            continue
        results.append(_not_deleted(name, topic_id, error))
    return m.DeleteTopicsResponse(responses=results)


def _not_deleted(name: str | None, topic_id: UUID, error: KafkaError) -> _Deleted:
    return _Deleted(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None)


def _delete(context: RequestContext, name: str | None, topic_id: UUID, *, is_doubled: bool) -> _Deleted:
    metadata = context.broker.metadata
    try:
        is_trusted = is_allowed(context, Operation.DELETE, ResourceType.CLUSTER)
        wanted = metadata.topic_by_id(topic_id).name if name is None else name
        # Checked first: the response must not reveal the topic's name, or whether it exists.
        if not is_trusted:
            require(context, Operation.DESCRIBE, ResourceType.TOPIC, wanted)
        topic = metadata.topics.get(wanted)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, STANDARD_MESSAGES[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            )
        name = topic.name
        if not is_trusted:
            require(context, Operation.DELETE, ResourceType.TOPIC, name)
        topic_id = topic.topic_id
        if is_doubled:
            raise invalid_request("The provided topic name maps to an ID that was already supplied.")
        if not context.broker.config.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if topic.name in INTERNAL_TOPICS:
            raise invalid_request(f"{topic.name} is internal and cannot be deleted")
        _count_mutations(context, len(topic.partitions), _STRICT_DELETION)
        context.broker.controller.delete_topic(topic.name)
    except KafkaError as error:
        return _not_deleted(name, topic_id, error)
    return _Deleted(name=name, topic_id=topic_id)


def create_partitions(context: ApiCall[m.CreatePartitionsRequest]) -> m.CreatePartitionsResponse:
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult
    named = Counter(topic.name for topic in context.body.topics)
    unique = [wanted for wanted in context.body.topics if named[wanted.name] == 1]
    if context.body.timeout_ms > 0 and sum(_added(context, wanted) for wanted in unique) > MOST_RECORDS:
        code, excess = ErrorCode.POLICY_VIOLATION, _TOO_MANY.format("additional ")
        form = partial(result, error_code=code, error_message=excess)
        return m.CreatePartitionsResponse(results=[form(name=wanted.name) for wanted in context.body.topics])
    results = []
    for name, times in named.items():
        if times > 1:
            code, repeated = _REPEATED_NAME
            results.append(result(name=name, error_code=code, error_message=repeated))
    for wanted in unique:
        try:
            _add_partitions(context, wanted)
            results.append(result(name=wanted.name))
        except KafkaError as error:
            # As in Kafka, only a wrong size or assignment is explained.
            message = None if error.code in _UNEXPLAINED else error.message or None
            results.append(result(name=wanted.name, error_code=error.code, error_message=message))
    return m.CreatePartitionsResponse(results=results)


def _added(context: RequestContext, wanted: _Enlarged) -> int:
    topic = context.broker.metadata.topics.get(wanted.name)
    if topic is None or not is_allowed(context, Operation.ALTER, ResourceType.TOPIC, wanted.name):
        return 0
    return max(wanted.count - len(topic.partitions), 0)


def _add_partitions(context: ApiCall[m.CreatePartitionsRequest], wanted: _Enlarged) -> None:
    if context.body.timeout_ms <= 0:
        raise _too_late()
    require(context, Operation.ALTER, ResourceType.TOPIC, wanted.name)
    topic = context.broker.metadata.topic(wanted.name)
    if topic.is_internal:
        raise invalid_request(f"{topic.name} is internal: its hashing would change")
    known = len(topic.partitions)
    if wanted.count == known:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {known} partition(s).")
    if wanted.count < known:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {known} partition(s); {wanted.count} would not be an increase.",
        )
    replicas = None
    if wanted.assignments is not None:
        added = wanted.count - known
        if len(wanted.assignments) != added:
            raise _misassigned(
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified."
            )
        replicas = [list(entry.broker_ids) for entry in wanted.assignments]
        factor = len(context.broker.metadata.replicas(topic.partitions[0]))
        _check_assignments(context.broker.controller, dict(enumerate(replicas, known)), factor)
    _count_mutations(context, wanted.count - known, _STRICT_ADDITION)
    if not context.body.validate_only:
        context.broker.controller.add_partitions(wanted.name, wanted.count, replicas)


APIS = (
    api(
        m.CreateTopicsRequest,
        (2, 7),
        create_topics,
        "CREATE CLUSTER or CREATE TOPIC",
        # Without it the response omits the configuration.
        "DESCRIBE_CONFIGS TOPIC or nothing",
        echoes=echo("topics"),
    ),
    # By topic id, the error contains the topic's name only if the client may describe the topic.
    api(
        m.DeleteTopicsRequest,
        (1, 6),
        delete_topics,
        "DELETE CLUSTER or DESCRIBE TOPIC",
        "DELETE CLUSTER or DELETE TOPIC",
        echoes=(echo("topics", "responses"), echo("topic_names", "responses", name="")),
    ),
    api(m.CreatePartitionsRequest, (0, 3), create_partitions, "ALTER TOPIC", echoes=echo("topics", "results")),
)
