"""Answer who is there: ApiVersions, Metadata, DescribeCluster, FindCoordinator.

ApiVersions 4 is the first version whose clients accept a feature with a minimum of 0, so below it the
supported features are left out (rules J.3); the finalized levels are what turns on transactions V2.
"""

import re
from typing import Any
from uuid import UUID

from broker_core.broker.call import Call
from broker_core.broker.catalog import FEATURES, Topic
from broker_core.broker.rights import allowed_operations, is_allowed, require
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    coordinator_partition,
)
from broker_core.wire import messages as m
from broker_core.wire.versions import SERVED

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_COORDINATOR_TOPICS = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}
_NO_COORDINATOR = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.", -1, "", -1)
_COORDINATED = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def api_versions(call: Call) -> None:
    """Tell what is served, and the cluster's feature levels (rules J.3)."""
    body, response = call.body, m.ApiVersionsResponse
    if call.version >= 3 and not (
        _SOFTWARE_NAME.fullmatch(body.client_software_name) and _SOFTWARE_NAME.fullmatch(body.client_software_version)
    ):
        call.answer(response(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
        return
    catalog = call.broker.catalog
    tags: dict[str, Any] = {"finalized_features_epoch": catalog.features_epoch}
    if call.version >= 4:
        tags["supported_features"] = [
            response.SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
        ]
    finalized = {name: level for name, level in catalog.features.items() if level}
    if finalized:
        tags["finalized_features"] = [
            response.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ]
    ranges = [
        response.ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
        for api in SERVED.values()
    ]
    call.answer(response(error_code=0, api_keys=ranges, **tags))
    if call.sasl is not None:
        call.sasl.versions_told()


def metadata(call: Call) -> None:
    """Describe brokers and topics; unknown topics are created if both sides allow it."""
    body, cluster, response = call.body, call.broker.cluster, m.MetadataResponse
    wanted_all = body.topics is None or (call.version == 0 and not body.topics)
    if wanted_all:
        topics = [
            _metadata_topic(call, topic)
            for topic in cluster.catalog.topics.values()
            if is_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        topics = [_wanted_topic(call, wanted) for wanted in body.topics]
    call.answer(
        response(
            brokers=[
                response.MetadataResponseBroker(node_id=broker_id, host=host, port=port)
                for broker_id, (host, port) in call.addresses.items()
            ],
            cluster_id=cluster.catalog.cluster_id,
            controller_id=min(cluster.addresses),
            topics=topics,
            authorized_operations=_cluster_operations(call),
        )
    )


def _cluster_operations(call: Call) -> frozenset[int] | None:
    """Return what the client may do to the cluster: None if it did not ask, nothing if it may not know."""
    if not call.body.include_cluster_authorized_operations:
        return None
    may_know = is_allowed(call, Operation.DESCRIBE, ResourceType.CLUSTER)
    return allowed_operations(call, ResourceType.CLUSTER) if may_know else frozenset()


def _wanted_topic(call: Call, wanted: Any) -> Any:
    cluster = call.broker.cluster
    name: str | None = wanted.name
    topic_id: UUID = wanted.topic_id if call.version >= 10 else m.NULL_UUID
    may_know = False
    try:
        if name is None:
            topic = cluster.catalog.topic_by_id(topic_id)
            require(call, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            return _metadata_topic(call, topic)
        # Before anything else: whether a topic is there is told to nobody who may not see it.
        require(call, Operation.DESCRIBE, ResourceType.TOPIC, name)
        may_know = True
        if name not in cluster.catalog.topics:
            cluster.catalog.check_new_topic(name)
            wants_creation = call.version < 4 or call.body.allow_auto_topic_creation
            if wants_creation and call.broker.config.auto_create_topics_enable:
                _require_creation(call, name)
                cluster.ensure_topic(name)
        return _metadata_topic(call, cluster.catalog.topic(name))
    except KafkaError as error:
        return m.MetadataResponse.MetadataResponseTopic(
            error_code=error.code,
            name=name if name is not None or call.version >= 12 else "",
            topic_id=topic_id,
            is_internal=may_know and name in INTERNAL_TOPICS,
            partitions=[],
            authorized_operations=_topic_operations(call, name)
            if name is not None and error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else None,
        )


def _require_creation(call: Call, name: str) -> None:
    if not is_allowed(call, Operation.CREATE, ResourceType.CLUSTER):
        require(call, Operation.CREATE, ResourceType.TOPIC, name)


def _topic_operations(call: Call, name: str) -> frozenset[int] | None:
    if not call.body.include_topic_authorized_operations:
        return None
    return allowed_operations(call, ResourceType.TOPIC, name)


def _metadata_topic(call: Call, topic: Topic) -> Any:
    response = m.MetadataResponse
    brokers = sorted(call.broker.cluster.addresses)
    return response.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            response.MetadataResponseTopic.MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if p.leader == NO_LEADER else 0,
                partition_index=index,
                leader_id=p.leader,
                leader_epoch=p.leader_epoch,
                replica_nodes=_leader_first(p.leader, brokers),
                isr_nodes=[] if p.leader == NO_LEADER else _leader_first(p.leader, brokers),
                offline_replicas=[],
            )
            for index, p in enumerate(topic.partitions)
        ],
        authorized_operations=_topic_operations(call, topic.name),
    )


def _leader_first(leader: int, brokers: list[int]) -> list[int]:
    """Name the brokers that can serve a partition: all of them, since they share its log."""
    return [*({leader} - {NO_LEADER}), *(broker for broker in brokers if broker != leader)]


def describe_cluster(call: Call) -> None:
    """Describe the brokers, for admin clients."""
    cluster, response = call.broker.cluster, m.DescribeClusterResponse
    if call.version >= 1 and call.body.endpoint_type != 1:
        call.answer(
            response(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="only brokers can be described here",
                cluster_id="",
                brokers=[],
            )
        )
        return
    call.answer(
        response(
            error_code=0,
            cluster_id=cluster.catalog.cluster_id,
            controller_id=min(cluster.addresses),
            brokers=[
                response.DescribeClusterBroker(broker_id=broker_id, host=host, port=port, is_fenced=False)
                for broker_id, (host, port) in call.addresses.items()
            ],
            authorized_operations=_cluster_operations(call),
        )
    )


def find_coordinator(call: Call) -> None:
    """Name the coordinator of a group or transactional id (rules A.4)."""
    body, response = call.body, m.FindCoordinatorResponse
    key_type = body.key_type if call.version >= 1 else 0
    keys = body.coordinator_keys if call.version >= 4 else [body.key]
    found = [_coordinator(call, key_type, key) for key in keys]
    if call.version >= 4:
        call.answer(
            response(
                coordinators=[
                    response.Coordinator(
                        key=key, node_id=node, host=host, port=port, error_code=code, error_message=message
                    )
                    for key, (code, message, node, host, port) in zip(keys, found, strict=True)
                ]
            )
        )
        return
    code, message, node, host, port = found[0]
    call.answer(response(error_code=code, error_message=message, node_id=node, host=host, port=port))


def _coordinator(call: Call, key_type: int, key: str) -> tuple[ErrorCode, str | None, int, str, int]:
    cluster = call.broker.cluster
    name = _COORDINATOR_TOPICS.get(key_type)
    if name is None:
        return ErrorCode.INVALID_REQUEST, f"coordinator key type {key_type} is not known", -1, "", -1
    try:
        require(call, Operation.DESCRIBE, _COORDINATED[key_type], key)
    except KafkaError as error:
        return error.code, error.message, -1, "", -1
    try:
        topic = cluster.ensure_topic(name)
    except KafkaError:
        return _NO_COORDINATOR
    partition = coordinator_partition(key, len(topic.partitions))
    leader = cluster.catalog.leadership(TopicPartition(name, partition)).leader
    if leader == NO_LEADER:
        return _NO_COORDINATOR
    host, port = call.addresses[leader]
    return ErrorCode.NONE, None, leader, host, port
