"""The administration of the cluster: its controllers, brokers, features (KIP-584), leaders and replicas.

All brokers are controllers too, and the running one with the lowest id leads them. Open transactions
continue as they were recorded when a feature's level changes: the level only decides the advertised version, how state
is written, and how the broker aborts a transaction itself.

The first replica of a partition is its preferred leader (rule J.5/10). A reassignment is complete as soon as all new
replicas run, since brokers share the logs: at once, or when the last of them starts. Then a replica leads.
"""

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal, require
from broker_core.broker.feature_levels import ELIGIBLE_LEADERS_VERSION, check_update
from broker_core.broker.partitions import Topic, replica_problem
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError, invalid_request
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CLUSTER_METADATA_TOPIC, NO_LEADER, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import Fields, response_to_each
from broker_core.wire.kafka_versions import is_before
from broker_core.wire.served import INDEXES, PARTITIONS, echo

_LEADER_EPOCH = 1

_Partition: TypeAlias = m.DescribeQuorumResponse.TopicData.PartitionData


def describe_quorum(context: ApiCall[m.DescribeQuorumRequest]) -> m.DescribeQuorumResponse:
    """Describe the controllers; the request must name the partition of the cluster's metadata, and no other."""
    try:
        require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return m.DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    named = [(topic.topic_name, part.partition_index) for topic in context.body.topics for part in topic.partitions]
    is_known = named == [(CLUSTER_METADATA_TOPIC, 0)]
    topics = [
        m.DescribeQuorumResponse.TopicData(
            topic_name=topic.topic_name,
            partitions=[_quorum(context) if is_known else _unknown(part.partition_index) for part in topic.partitions],
        )
        for topic in context.body.topics
    ]
    return m.DescribeQuorumResponse(topics=topics, nodes=_nodes(context) if is_known else [])


def _unknown(index: int) -> _Partition:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Partition(partition_index=index, error_code=code, error_message=STANDARD_MESSAGES[code])


def _quorum(context: RequestContext) -> _Partition:
    controller = context.broker.controller
    end_offset = controller.metadata_log.log_end_offset
    return _Partition(
        leader_id=min(controller.addresses),
        leader_epoch=_LEADER_EPOCH,
        high_watermark=end_offset,
        current_voters=[
            _Partition.ReplicaState(
                replica_id=broker_id,
                replica_directory_id=_directory_id(context.broker.metadata.cluster_id, broker_id),
                log_end_offset=end_offset,
                last_fetch_timestamp=context.now_ms,
                last_caught_up_timestamp=context.now_ms,
            )
            for broker_id in controller.addresses
        ],
    )


def _directory_id(cluster_id: str, broker_id: int) -> UUID:
    """Return an id of the broker's log directory that stays the same, since Kafka writes it into the directory."""
    return UUID(bytes=hashlib.sha256(f"{cluster_id}/{broker_id}".encode()).digest()[:16], version=4)


def _nodes(context: RequestContext) -> list[m.DescribeQuorumResponse.Node]:
    form = m.DescribeQuorumResponse.Node
    return [
        form(node_id=broker_id, listeners=[form.Listener(name=context.connection.listener.name, host=host, port=port)])
        for broker_id, (host, port) in context.addresses.items()
    ]


def unregister(context: ApiCall[m.UnregisterBrokerRequest]) -> m.UnregisterBrokerResponse:
    """Accept the removal of a broker; one of this cluster is registered again when it runs, so nothing changes."""
    try:
        require(context, Operation.ALTER, ResourceType.CLUSTER)
        if context.body.broker_id not in context.broker.controller.broker_ids:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {context.body.broker_id} is not currently registered"
            )
    except KafkaError as error:
        return m.UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return m.UnregisterBrokerResponse()


_Update: TypeAlias = m.UpdateFeaturesRequest.FeatureUpdateKey
_Result: TypeAlias = m.UpdateFeaturesResponse.UpdatableFeatureResult
_FIRST_WITHOUT_RESULTS = 2
# Older versions of Kafka answer for each feature, and set what can be set.
_FIRST_WITH_ALL_OR_NONE = "4.0"
# The message of a success, in responses with a result for each feature.
_NO_ERROR = "NONE"


def update_features(context: ApiCall[m.UpdateFeaturesRequest]) -> m.UpdateFeaturesResponse:
    """Set feature levels, from Kafka 4.0 all or none; if a feature is named twice, the last level counts."""
    refused = refusal(context, Operation.ALTER, ResourceType.CLUSTER)
    if refused:
        return m.UpdateFeaturesResponse(
            error_code=refused, error_message=f"{context.principal} has no right to ALTER the cluster"
        )
    updates = {update.feature: update for update in context.body.feature_updates}
    refusals = {name: error for name, update in updates.items() if (error := _refusal(context, update)) is not None}
    if is_before(context.broker.metadata.kafka_version, _FIRST_WITH_ALL_OR_NONE):
        _set_levels(context, (update for name, update in updates.items() if name not in refusals))
        results = [
            _result(name, refusals[name].message, refusals[name].code) if name in refusals else _result(name, None)
            for name in sorted(updates)
        ]
        return m.UpdateFeaturesResponse(results=results)
    for error in refusals.values():
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return m.UpdateFeaturesResponse(error_code=error.code, error_message=message)
    _set_levels(context, updates.values())
    return m.UpdateFeaturesResponse(
        error_message=None,
        results=[] if context.version >= _FIRST_WITHOUT_RESULTS else [_result(name, _NO_ERROR) for name in updates],
    )


def _refusal(context: RequestContext, update: _Update) -> KafkaError | None:
    metadata = context.broker.metadata
    level, controller = metadata.features.get(update.feature, 0), min(context.broker.controller.addresses)
    try:
        # Version 0 has a flag for downgrades that Kafka now ignores: version 0 can only upgrade.
        check_update(
            metadata.kafka_version, update.feature, update.max_version_level, level, update.upgrade_type, controller
        )
    except KafkaError as error:
        return error
    return None


def _set_levels(context: ApiCall[m.UpdateFeaturesRequest], updates: Iterable[_Update]) -> None:
    if context.body.validate_only:
        return
    metadata, settings = context.broker.metadata, context.broker.settings
    for update in updates:
        name, before = update.feature, metadata.features[update.feature]
        if update.max_version_level != before:
            metadata.set_feature(name, update.max_version_level)
            if name == ELIGIBLE_LEADERS_VERSION and not before:
                metadata.enable_eligible_leaders(settings.static.min_insync_replicas)
                settings.changed()


def _result(name: str, message: str | None, code: ErrorCode = ErrorCode.NONE) -> _Result:
    return _Result(feature=name, error_code=code, error_message=message)


_PREFERRED, _UNCLEAN = 0, 1
_Reassigned: TypeAlias = m.AlterPartitionReassignmentsRequest.ReassignableTopic
_NewReplicas: TypeAlias = m.AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
_Ongoing: TypeAlias = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment.OngoingPartitionReassignment


def elect(context: ApiCall[m.ElectLeadersRequest]) -> m.ApiMessage:
    body = context.body
    refused = None
    try:
        require(context, Operation.ALTER, ResourceType.CLUSTER)
        if body.election_type not in (_PREFERRED, _UNCLEAN):
            raise invalid_request(f"Unknown election type {body.election_type}")
    except KafkaError as error:
        refused = error
    asked = body
    if body.topic_partitions is None:
        topics = {} if refused else context.broker.metadata.topics
        every = [
            m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(range(len(each.partitions))))
            for name, each in topics.items()
        ]
        asked = m.ElectLeadersRequest(topic_partitions=every)

    def step(topic: m.ElectLeadersRequest.TopicPartitions, index: int) -> Fields:
        if refused is not None:
            raise KafkaError(refused.code, refused.message)
        _elect(context, body.election_type, TopicPartition(topic.topic, index))
        return {}

    response = response_to_each(context.request, step, asked)
    assert isinstance(response, m.ElectLeadersResponse)
    response.error_code = ErrorCode.NONE if refused is None else refused.code
    if body.topic_partitions is None:
        for each in response.replica_election_results:
            needed = [found for found in each.partition_result if found.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            each.partition_result = needed
    return response


def _elect(context: RequestContext, kind: int, topic_partition: TopicPartition) -> None:
    """Elect the leader of one partition, or raise why there is no election."""
    topic, controller = topic_partition.topic, context.broker.controller
    if topic not in context.broker.metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not context.broker.metadata.has_partition(topic_partition):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_partition}")
    leader = context.broker.metadata.leadership(topic_partition).leader
    preferred = controller.preferred_leader(topic_partition)
    if leader != NO_LEADER and (leader == preferred or kind == _UNCLEAN):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if kind == _UNCLEAN:
        controller.elect(topic_partition, preferred)
        if controller.leader_of(topic_partition) is None:
            problem = "Eligible topic partition leaders are not available."
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, problem)
    elif leader == NO_LEADER or preferred not in controller.addresses:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    else:
        controller.move_leader(topic_partition, preferred)


def reassign(context: ApiCall[m.AlterPartitionReassignmentsRequest]) -> m.ApiMessage:
    """Reassign partitions to brokers, each independently of the others."""
    require(context, Operation.ALTER, ResourceType.CLUSTER)
    response = response_to_each(context.request, partial(_reassign, context))
    assert isinstance(response, m.AlterPartitionReassignmentsResponse)
    response.allow_replication_factor_change = context.body.allow_replication_factor_change
    # Kafka answers an empty text if the request names no topic.
    response.error_message = None if context.body.topics else ""
    return response


def _reassign(context: ApiCall[m.AlterPartitionReassignmentsRequest], entry: _Reassigned, part: _NewReplicas) -> Fields:
    controller, metadata, topic = context.broker.controller, context.broker.metadata, entry.name
    topic_partition, replicas = TopicPartition(topic, part.partition_index), part.replicas
    if topic not in metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not metadata.has_partition(topic_partition):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{topic_partition.partition}."
        )
    partition = metadata.leadership(topic_partition)
    if replicas is None:
        if not partition.is_reassigned:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        controller.cancel_reassignment(topic_partition)
        return {}
    problem = replica_problem(replicas, controller.broker_ids)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}.")
    count = len(metadata.replicas(partition)) - len(partition.removing)
    if not context.body.allow_replication_factor_change and len(replicas) != count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {count} to {len(replicas)}"
        )
    controller.reassign(topic_partition, replicas)
    return {}


def list_reassignments(context: ApiCall[m.ListPartitionReassignmentsRequest]) -> m.ListPartitionReassignmentsResponse:
    """List the reassignments in progress: those with a new replica whose broker does not run."""
    require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    topics, wanted = context.broker.metadata.topics, context.body.topics
    if wanted is None:
        named = {name: list(range(len(topic.partitions))) for name, topic in topics.items()}
    else:
        named = {topic.name: topic.partition_indexes for topic in wanted}
    form = m.ListPartitionReassignmentsResponse
    listed = [(name, _reassignments(topics[name], indexes)) for name, indexes in named.items() if name in topics]
    return form(
        error_message=None,
        topics=[form.OngoingTopicReassignment(name=name, partitions=found) for name, found in listed if found],
    )


def _reassignments(topic: Topic, indexes: Iterable[int]) -> list[_Ongoing]:
    return [
        _Ongoing(
            partition_index=index,
            replicas=list(topic.partitions[index].replicas),
            adding_replicas=list(topic.partitions[index].adding),
            removing_replicas=list(topic.partitions[index].removing),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and topic.partitions[index].is_reassigned
    ]


APIS = (
    api(m.DescribeQuorumRequest, (0, 2), describe_quorum, "DESCRIBE CLUSTER"),
    api(m.UnregisterBrokerRequest, (0, 0), unregister, "ALTER CLUSTER"),
    api(m.UpdateFeaturesRequest, (0, 2), update_features, "ALTER CLUSTER"),
    api(
        m.ElectLeadersRequest,
        (0, 2),
        elect,
        "ALTER CLUSTER",
        echoes=echo(
            "topic_partitions", "replica_election_results", echo("partitions", "partition_result", partition_id="")
        ),
    ),
    api(
        m.AlterPartitionReassignmentsRequest,
        (0, 1),
        reassign,
        "ALTER CLUSTER",
        echoes=echo("topics", "responses", PARTITIONS),
    ),
    api(
        m.ListPartitionReassignmentsRequest,
        (0, 0),
        list_reassignments,
        "DESCRIBE CLUSTER",
        echoes=echo("topics", "topics", INDEXES),
    ),
)
