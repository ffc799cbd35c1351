"""The WriteTxnMarkers API: another coordinator's markers, or an administrator's abort (KIP-664)."""

from collections.abc import Iterator
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, refusal
from broker_core.broker.broker import Broker
from broker_core.broker.marker_writer import append_marker
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, needs_one
from broker_core.types import ProducerIdentity, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.served import INDEXES, Echo

_Result: TypeAlias = m.WriteTxnMarkersResponse.WritableTxnMarkerResult


def write_markers(context: ApiCall[m.WriteTxnMarkersRequest]) -> m.WriteTxnMarkersResponse:
    """Write each marker to each of its partitions that this broker leads (rules A.13).

    The response identifies markers by producer id alone, so those of one producer are answered as one.
    """
    answers: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in context.body.markers:
        for topic_partition, code in _written(context, marker):
            topics = answers.setdefault(marker.producer_id, {})
            topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = code
    return m.WriteTxnMarkersResponse(markers=[_result(producer_id, topics) for producer_id, topics in answers.items()])


def _written(
    context: RequestContext, marker: m.WriteTxnMarkersRequest.WritableTxnMarker
) -> Iterator[tuple[TopicPartition, ErrorCode]]:
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    # Coordinators have the first right, administrators the second (KIP-664).
    refused = not is_allowed(context, Operation.ALTER, ResourceType.CLUSTER) and refusal(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    for topic in marker.topics:
        for index in topic.partition_indexes:
            topic_partition = TopicPartition(topic.name, index)
            yield (
                topic_partition,
                refused
                or _not_here(context.broker, topic_partition)
                or append_marker(
                    context.broker,
                    topic_partition,
                    producer,
                    commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                    now_ms=context.now_ms,
                ),
            )


def _not_here(broker: Broker, topic_partition: TopicPartition) -> ErrorCode:
    """Return UNKNOWN_TOPIC_OR_PARTITION for a partition that this broker is no replica of (rule A.13 receiver/4)."""
    try:
        is_here = broker.is_replica_of(topic_partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if is_here else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _result(producer_id: int, topics: dict[str, dict[int, ErrorCode]]) -> _Result:
    form = _Result.WritableTxnMarkerTopicResult
    return _Result(
        producer_id=producer_id,
        topics=[
            form(
                name=name,
                partitions=[
                    form.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
    )


APIS = (
    api(
        m.WriteTxnMarkersRequest,
        (1, 2),
        write_markers,
        needs_one((Operation.ALTER, CLUSTER), (Operation.CLUSTER_ACTION, CLUSTER)),
        echoes=(Echo("markers", "markers", inner=(Echo("topics", "topics", inner=INDEXES),)),),
    ),
)
