"""The administration of the cluster: DescribeQuorum, UnregisterBroker and UpdateFeatures (KIP-584).

All brokers are controllers too, and the one with the lowest id among those that run leads them. Open transactions
continue as they were recorded when a feature's level changes: the level only decides the advertised version, how state
is written, and how the broker aborts a transaction itself.
"""

import hashlib
from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal, require
from broker_core.broker.feature_levels import ELIGIBLE_LEADERS_VERSION, check_update
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import CLUSTER_METADATA_TOPIC
from broker_core.wire import messages as m
from broker_core.wire.kafka_versions import is_before

_LEADER_EPOCH = 1

_Partition: TypeAlias = m.DescribeQuorumResponse.TopicData.PartitionData


def describe_quorum(context: ApiCall[m.DescribeQuorumRequest]) -> m.DescribeQuorumResponse:
    """Describe the controllers; the request must name the partition of the cluster's metadata, and no other."""
    try:
        require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return m.DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    form = m.DescribeQuorumResponse
    named = [(topic.topic_name, part.partition_index) for topic in context.body.topics for part in topic.partitions]
    is_known = named == [(CLUSTER_METADATA_TOPIC, 0)]
    topics = [
        form.TopicData(
            topic_name=topic.topic_name,
            partitions=[_quorum(context) if is_known else _unknown(part.partition_index) for part in topic.partitions],
        )
        for topic in context.body.topics
    ]
    return form(topics=topics, nodes=_nodes(context) if is_known else [])


def _unknown(index: int) -> _Partition:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Partition(partition_index=index, error_code=code, error_message=STANDARD_MESSAGES[code])


def _quorum(context: RequestContext) -> _Partition:
    controller = context.broker.controller
    end_offset = controller.metadata_end_offset
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
        form(node_id=broker_id, listeners=[form.Listener(name=context.listener_name, host=host, port=port)])
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
# Older versions of Kafka answer for each feature, and set those that can be set.
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
    metadata, settings = context.broker.metadata, context.broker.services.settings
    for update in updates:
        name, before = update.feature, metadata.features[update.feature]
        if update.max_version_level != before:
            metadata.set_feature(name, update.max_version_level)
            if name == ELIGIBLE_LEADERS_VERSION and not before:
                metadata.enable_eligible_leaders(settings.static.min_insync_replicas)
                settings.changed()


def _result(name: str, message: str | None, code: ErrorCode = ErrorCode.NONE) -> _Result:
    return _Result(feature=name, error_code=code, error_message=message)


APIS = (
    api(m.DescribeQuorumRequest, (0, 2), describe_quorum, "DESCRIBE CLUSTER"),
    api(m.UnregisterBrokerRequest, (0, 0), unregister, "ALTER CLUSTER"),
    api(m.UpdateFeaturesRequest, (0, 2), update_features, "ALTER CLUSTER"),
)
