"""The APIs that describe the cluster and its topics, in pages too (KIP-966), and that find coordinators.

ApiVersions 4 is the first version whose clients accept a feature with a minimum of 0, so below it
these features are left out (rules J.3). The finalized levels enable transactions V2 in clients.
"""

import re
from typing import TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import allowed_operations, is_allowed, operation_bits, refusal, require
from broker_core.broker.partitions import Leadership, Topic, check_topic_name
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.installed import parts
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, NO_LEADER, TRANSACTION_STATE_TOPIC
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_response
from broker_core.wire.kafka_versions import feature_levels
from broker_core.wire.served import echo

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_COORDINATOR_TOPICS = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}
_Topic: TypeAlias = m.MetadataResponse.MetadataResponseTopic
# The kinds of servers in DescribeCluster.
_BROKERS, _CONTROLLERS = 1, 2
_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LEVEL_0 = 4
_NO_NODE = -1
_FIRST_WITH_ABSENT_REPLICAS = 1
_VERSIONS_WITH_UNUSED_IDS = (10, 11)
_NO_COORDINATOR = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.", -1, "", -1)
_COORDINATED = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def api_versions(context: ApiCall[m.ApiVersionsRequest]) -> m.ApiVersionsResponse:
    """Answer with the served API versions and the cluster's feature levels (rules J.3)."""
    response = m.ApiVersionsResponse
    error = _error_of_client(context)
    if error:
        return response(error_code=error)
    if context.sasl is not None:
        context.sasl.versions_told()
    cluster_metadata = context.broker.metadata
    supported = [
        response.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in feature_levels(cluster_metadata.kafka_version).items()
        if levels.lowest or context.version >= _FIRST_WITH_LEVEL_0
    ]
    finalized = [
        response.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in cluster_metadata.features.items()
        if level
    ]
    return response(
        api_keys=[each.advertised() for each in context.broker.served.values()],
        finalized_features_epoch=cluster_metadata.features_epoch,
        supported_features=supported,
        finalized_features=finalized,
    )


def _error_of_client(context: ApiCall[m.ApiVersionsRequest]) -> ErrorCode:
    """Return the error for a client whose name is malformed, or that expects another cluster or node (KIP-1242)."""
    body = context.body
    if (body.cluster_id is None) != (body.node_id == _NO_NODE):
        return ErrorCode.INVALID_REQUEST
    names = (body.client_software_name, body.client_software_version)
    if context.version >= _FIRST_WITH_SOFTWARE and not all(map(_SOFTWARE_NAME.fullmatch, names)):
        return ErrorCode.INVALID_REQUEST
    broker = context.broker
    if body.cluster_id is not None:
        expected, actual = (body.cluster_id, body.node_id), (broker.metadata.cluster_id, broker.broker_id)
        return ErrorCode.NONE if expected == actual else ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def metadata(context: ApiCall[m.MetadataRequest]) -> m.MetadataResponse:
    """Describe brokers and topics; unknown topics are created if client and broker allow it."""
    body, broker, response = context.body, context.broker, m.MetadataResponse
    if body.topics is None or (context.version == 0 and not body.topics):
        topics = [
            _metadata_topic(context, topic)
            for topic in broker.metadata.topics.values()
            if is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        if context.version in _VERSIONS_WITH_UNUSED_IDS and any(
            each.name is None or each.topic_id not in (None, m.NULL_UUID) for each in body.topics
        ):
            return _without_topic_ids(context)
        # As in Kafka, a topic that is named twice is answered once.
        once = {(each.name, each.topic_id): each for each in body.topics}
        topics = [_wanted_topic(context, wanted) for wanted in once.values()]
    return response(
        brokers=[
            response.MetadataResponseBroker(node_id=broker_id, host=host, port=port)
            for broker_id, (host, port) in context.addresses.items()
        ],
        cluster_id=broker.metadata.cluster_id,
        controller_id=min(broker.controller.addresses),
        topics=topics,
        authorized_operations=_cluster_operations(context),
    )


def _without_topic_ids(context: ApiCall[m.MetadataRequest]) -> m.MetadataResponse:
    """Return INVALID_REQUEST for each topic: these versions have topic ids, and no broker takes them."""
    topics = [
        _Topic(error_code=ErrorCode.INVALID_REQUEST, name=each.name or "", topic_id=each.topic_id)
        for each in context.body.topics or ()
    ]
    return m.MetadataResponse(topics=topics)


def _cluster_operations(context: ApiCall[m.DescribeClusterRequest | m.MetadataRequest]) -> frozenset[int] | None:
    """Return the client's operations on the cluster, no operation without DESCRIBE, and None if not requested."""
    if not context.body.include_cluster_authorized_operations:
        return None
    may_know = is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    return allowed_operations(context, ResourceType.CLUSTER) if may_know else frozenset()


def _wanted_topic(context: ApiCall[m.MetadataRequest], wanted: m.MetadataRequest.MetadataRequestTopic) -> _Topic:
    broker = context.broker
    name: str | None = wanted.name
    topic_id: UUID = wanted.topic_id or m.NULL_UUID
    if topic_id != m.NULL_UUID:
        # An id counts more than a name.
        name = None
    may_know = False
    try:
        if name is None:
            topic = broker.metadata.topic_by_id(topic_id)
            require(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            return _metadata_topic(context, topic)
        # Checked first: a client that may not describe a topic must not learn whether it exists.
        require(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        may_know = True
        if name not in broker.metadata.topics:
            broker.metadata.check_new_topic(name)
            if context.body.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable:
                if not is_allowed(context, Operation.CREATE, ResourceType.CLUSTER):
                    require(context, Operation.CREATE, ResourceType.TOPIC, name)
                broker.controller.ensure_topic(name)
        return _metadata_topic(context, broker.metadata.topic(name))
    except KafkaError as error:
        return _Topic(
            error_code=error.code,
            name=name if name is not None or context.version >= 12 else "",
            topic_id=topic_id,
            is_internal=may_know and name in INTERNAL_TOPICS,
            authorized_operations=_topic_operations(context, name)
            if name is not None and error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else None,
        )


def _topic_operations(context: ApiCall[m.MetadataRequest], name: str) -> frozenset[int] | None:
    if not context.body.include_topic_authorized_operations:
        return None
    return allowed_operations(context, ResourceType.TOPIC, name)


def _metadata_topic(context: ApiCall[m.MetadataRequest], topic: Topic) -> _Topic:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_metadata_partition(context, index, each) for index, each in enumerate(topic.partitions)],
        authorized_operations=_topic_operations(context, topic.name),
    )


def _metadata_partition(context: RequestContext, index: int, partition: Leadership) -> _Topic.MetadataResponsePartition:
    """Describe a partition, which has no leader if all its replicas are offline (rule J.5/9)."""
    cluster = context.broker.metadata
    replicas = cluster.replicas(partition)
    code = ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE
    offline = cluster.offline(partition)
    if offline and context.version < _FIRST_WITH_ABSENT_REPLICAS:
        # As in Kafka, these clients see only replicas that they can reach.
        replicas = tuple(broker_id for broker_id in replicas if broker_id not in offline)
        code = code or ErrorCode.REPLICA_NOT_AVAILABLE
    return _Topic.MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=cluster.in_sync(partition),
        offline_replicas=offline,
    )


def describe_cluster(context: ApiCall[m.DescribeClusterRequest]) -> m.DescribeClusterResponse:
    broker, response = context.broker, m.DescribeClusterResponse
    endpoint_type = context.body.endpoint_type
    if endpoint_type != _BROKERS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
        if endpoint_type == _CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return response(error_code=code, error_message=message)
    return response(
        cluster_id=broker.metadata.cluster_id,
        controller_id=min(broker.controller.addresses),
        brokers=[
            response.DescribeClusterBroker(broker_id=broker_id, host=host, port=port)
            for broker_id, (host, port) in context.addresses.items()
        ],
        authorized_operations=_cluster_operations(context),
    )


def find_coordinator(context: ApiCall[m.FindCoordinatorRequest]) -> m.FindCoordinatorResponse:
    """Find the coordinator of a group or transactional id (rules A.4)."""
    body, response = context.body, m.FindCoordinatorResponse
    keys = body.coordinator_keys if context.version >= 4 else [body.key]
    found = [_coordinator(context, body.key_type, key) for key in keys]
    if context.version >= 4:
        return response(
            coordinators=[
                response.Coordinator(
                    key=key,
                    node_id=node,
                    host=host,
                    port=port,
                    error_code=code,
                    # As in Kafka, only a key type that does not exist is explained.
                    error_message=message if _topic_of(body.key_type) is None else "",
                )
                for key, (code, message, node, host, port) in zip(keys, found, strict=True)
            ]
        )
    code, message, node, host, port = found[0]
    return response(error_code=code, error_message=message, node_id=node, host=host, port=port)


def _topic_of(key_type: int) -> str | None:
    """Return the internal topic whose partitions' leaders coordinate keys of a type, None if there is no such type."""
    of_features = {each.KEY_TYPE: each.INTERNAL_TOPIC.name for each in parts("internal_topics")}
    return _COORDINATOR_TOPICS.get(key_type, of_features.get(key_type))


def _check_key(context: RequestContext, key_type: int, key: str) -> None:
    if key_type in _COORDINATED:
        require(context, Operation.DESCRIBE, _COORDINATED[key_type], key)
        return
    for each in parts("internal_topics"):
        if key_type == each.KEY_TYPE:
            each.check_key(context, key)


def _coordinator(context: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, str | None, int, str, int]:
    broker = context.broker
    name = _topic_of(key_type)
    if name is None:
        return ErrorCode.INVALID_REQUEST, STANDARD_MESSAGES[ErrorCode.INVALID_REQUEST], -1, "", -1
    try:
        _check_key(context, key_type, key)
    except KafkaError as error:
        return error.code, error.message, -1, "", -1
    try:
        partition = broker.controller.coordinator_partition_of(name, key)
    except KafkaError:
        return _NO_COORDINATOR
    leader = broker.metadata.leadership(partition).leader
    if leader == NO_LEADER:
        return _NO_COORDINATOR
    host, port = context.addresses[leader]
    return ErrorCode.NONE, ErrorCode.NONE.name, leader, host, port


_Described: TypeAlias = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


def describe_topic_partitions(context: ApiCall[m.DescribeTopicPartitionsRequest]) -> m.DescribeTopicPartitionsResponse:
    """Describe topics in the order of their names, from the cursor on, up to the limit of partitions."""
    body, form = context.body, m.DescribeTopicPartitionsResponse
    cursor = body.cursor
    wants_all = not body.topics
    first = "" if cursor is None else cursor.topic_name
    known = context.broker.metadata.topics
    names = sorted(name for name in (known if wants_all else {topic.name for topic in body.topics}) if name >= first)
    if cursor is not None and (cursor.partition_index < 0 or not (wants_all or first in names)):
        wrong_cursor: m.DescribeTopicPartitionsResponse = error_response(context.request, ErrorCode.INVALID_REQUEST)
        return wrong_cursor
    topics, refused, next_cursor = [], [], None
    remaining = max(min(context.broker.config.max_request_partition_size_limit, body.response_partition_limit), 1)
    for name in names:
        if not _may_describe(context, name, wants_all):
            if not wants_all:
                refused.append(_without_partitions(context, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if next_cursor is not None:
            continue
        if remaining == 0:
            next_cursor = form.Cursor(topic_name=name)
            continue
        if name not in known:
            topics.append(_without_partitions(context, name, _why_unknown(name)))
            continue
        start = cursor.partition_index if name == first and cursor is not None else 0
        end = min(len(known[name].partitions), start + remaining)
        topics.append(_described(context, known[name], start, end))
        remaining -= max(end - start, 0)
        if end < len(known[name].partitions):
            next_cursor = form.Cursor(topic_name=name, partition_index=end)
    return form(topics=topics + refused, next_cursor=next_cursor)


def _may_describe(context: RequestContext, name: str, wants_all: bool) -> bool:
    if wants_all:
        return is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    return refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name) is ErrorCode.NONE


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _without_partitions(context: RequestContext, name: str, code: ErrorCode) -> _Described:
    operations = {}
    if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        operations["topic_authorized_operations"] = operation_bits(context, ResourceType.TOPIC, name)
    return _Described(
        error_code=code,
        name=name,
        topic_id=m.NULL_UUID,
        is_internal=name in INTERNAL_TOPICS and bool(operations),
        partitions=[],
        **operations,
    )


def _described(context: RequestContext, topic: Topic, start: int, end: int) -> _Described:
    form = _Described
    cluster = context.broker.metadata
    return form(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            form.DescribeTopicPartitionsResponsePartition(
                # Unlike Metadata, Kafka answers no error for a partition without a leader.
                partition_index=index,
                leader_id=leadership.leader,
                leader_epoch=leadership.leader_epoch,
                replica_nodes=list(cluster.replicas(leadership)),
                isr_nodes=cluster.in_sync(leadership),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=cluster.offline(leadership),
            )
            for index, leadership in enumerate(topic.partitions[start:end], start)
        ],
        topic_authorized_operations=operation_bits(context, ResourceType.TOPIC, topic.name),
    )


APIS = (
    api(
        m.MetadataRequest,
        (0, 13),
        metadata,
        "DESCRIBE TOPIC",
        # For a topic that does not exist and would be created.
        "CREATE CLUSTER or CREATE TOPIC",
        # For the allowed operations on the cluster in the response; without the right there are none.
        "DESCRIBE CLUSTER or nothing",
        echoes=echo("topics"),
    ),
    api(
        m.FindCoordinatorRequest,
        (0, 6),
        find_coordinator,
        "DESCRIBE GROUP",
        "DESCRIBE TRANSACTIONAL_ID",
        *(each.KEY_RIGHT for each in parts("internal_topics")),
        echoes=echo("coordinator_keys", "coordinators", key=""),
    ),
    api(m.ApiVersionsRequest, (0, 5), api_versions),
    api(m.DescribeClusterRequest, (0, 2), describe_cluster, "DESCRIBE CLUSTER or nothing"),
    api(m.DescribeTopicPartitionsRequest, (0, 0), describe_topic_partitions, "DESCRIBE TOPIC", echoes=echo("topics")),
)
