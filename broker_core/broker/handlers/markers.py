"""Write end-of-transaction markers on request: another coordinator's, or an administrator's abort (KIP-664)."""

from broker_core.broker.call import Call
from broker_core.broker.markers import append_marker
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition
from broker_core.wire import messages as m


def write_markers(call: Call) -> None:
    """Write each marker to each of its partitions that this broker leads (facts A.13)."""
    response = m.WriteTxnMarkersResponse
    results = []
    for marker in call.body.markers:
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        version = marker.transaction_version if call.version >= 2 else 0
        topics = []
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                topic_partition = TopicPartition(topic.name, index)
                code = append_marker(
                    call.broker, topic_partition, producer, commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch, transaction_version=version, now_ms=call.now_ms)
                # A broker that does not lead the partition says that it does not know it, as Kafka's does.
                if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions.append(response.WritableTxnMarkerResult.WritableTxnMarkerTopicResult
                                  .WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            topics.append(response.WritableTxnMarkerResult.WritableTxnMarkerTopicResult(
                name=topic.name, partitions=partitions))
        results.append(response.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    call.answer(response(markers=results))
