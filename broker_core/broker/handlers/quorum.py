"""DescribeQuorum and UnregisterBroker: the administration of the controllers and of the registered brokers.

All brokers are controllers too, and the one with the lowest id among those that run leads them.
"""

import hashlib
from typing import TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, needs
from broker_core.types import CLUSTER_METADATA_TOPIC
from broker_core.wire import messages as m

_LEADER_EPOCH = 1
_NOT_HOSTED = "This server does not host this topic-partition."

_Partition: TypeAlias = m.DescribeQuorumResponse.TopicData.PartitionData


def describe(context: ApiCall[m.DescribeQuorumRequest]) -> m.DescribeQuorumResponse:
    """Describe the controllers; the request must name the partition of the cluster's metadata, and no other."""
    try:
        require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return m.DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    form = m.DescribeQuorumResponse
    named = [(topic.topic_name, part.partition_index) for topic in context.body.topics for part in topic.partitions]
    is_known = named == [(CLUSTER_METADATA_TOPIC, 0)]
    return form(
        topics=[
            form.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _quorum(context) if is_known else _unknown(part.partition_index) for part in topic.partitions
                ],
            )
            for topic in context.body.topics
        ],
        nodes=_nodes(context) if is_known else [],
    )


def _unknown(index: int) -> _Partition:
    return _Partition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=_NOT_HOSTED)


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


APIS = (
    api(m.DescribeQuorumRequest, (0, 2), describe, needs(Operation.DESCRIBE, CLUSTER)),
    api(m.UnregisterBrokerRequest, (0, 0), unregister, needs(Operation.ALTER, CLUSTER)),
)
