"""The APIs that query logs without reading records (offsets, epoch ends, producers), and DeleteRecords."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypeAlias, TypeVar

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, require
from broker_core.broker.partitions import check_topic_name
from broker_core.broker.request_context import ApiCall, RequestContext, isolation_of
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, TOPIC, needs, needs_one
from broker_core.types import NO_LEADER_EPOCH, NO_TIMESTAMP, IsolationLevel, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.served import INDEXES, TOPICS, Echo

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
# The version that introduced each special timestamp (rules D.3).
_SINCE = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_DEBUGGING_REPLICA = -2
_NO_OFFSET = -1

Entry = TypeVar("Entry")
_WantedOffset: TypeAlias = m.ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
_WantedEpoch: TypeAlias = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_Producer: TypeAlias = m.DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState
_EpochEnd = tuple[int, int]
_Found = tuple[int, int, int]
_NOTHING: _Found = (_NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH)


def list_offsets(context: ApiCall[m.ListOffsetsRequest]) -> m.ListOffsetsResponse:
    """Find offsets by timestamp or by special timestamp; for read_committed the end is the last stable offset."""
    named = Counter((topic.name, entry.partition_index) for topic in context.body.topics for entry in topic.partitions)
    form = m.ListOffsetsResponse.ListOffsetsTopicResponse
    topics = []
    entries = (
        (topic.name, entry.partition_index, entry) for topic in context.body.topics for entry in topic.partitions
    )
    for name, merged in _merged(entries):
        partitions = []
        for entry in merged:
            code, (offset, timestamp, epoch) = ErrorCode.NONE, _NOTHING
            try:
                require(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
                if named[name, entry.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                offset, timestamp, epoch = _find_offset(context, name, entry)
            except KafkaError as error:
                code = error.code
            partitions.append(
                form.ListOffsetsPartitionResponse(
                    partition_index=entry.partition_index,
                    error_code=code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(form(name=name, partitions=partitions))
    return m.ListOffsetsResponse(topics=topics)


def _merged(partitions: Iterable[tuple[str, int, Entry]]) -> Iterable[tuple[str, Collection[Entry]]]:
    """Return the entries of topics as Kafka reads them: each topic and partition once, its last entry."""
    found: dict[str, dict[int, Entry]] = {}
    for name, index, entry in partitions:
        found.setdefault(name, {})[index] = entry
    return [(name, entries.values()) for name, entries in found.items()]


def _find_offset(context: ApiCall[m.ListOffsetsRequest], topic: str, entry: _WantedOffset) -> _Found:
    wanted = entry.timestamp
    if wanted < 0 and context.version < _SINCE.get(wanted, 2**15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted} is unknown in version {context.version}")
    log, leader_epoch = context.broker.led_log(
        TopicPartition(topic, entry.partition_index), context.now_ms, entry.current_leader_epoch
    )
    isolation = isolation_of(context.body.isolation_level)
    if wanted == _LATEST:
        if context.body.replica_id == _DEBUGGING_REPLICA:
            return log.log_end_offset, NO_TIMESTAMP, leader_epoch
        stable = isolation is IsolationLevel.READ_COMMITTED
        return log.last_stable_offset if stable else log.high_watermark, NO_TIMESTAMP, leader_epoch
    if wanted in (_EARLIEST, _EARLIEST_LOCAL):
        return log.log_start_offset, NO_TIMESTAMP, log.first_leader_epoch
    if wanted in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = log.max_timestamp(isolation) if wanted == _MAX_TIMESTAMP else log.offset_for_timestamp(wanted, isolation)
    return found or _NOTHING


def offset_for_leader_epoch(context: ApiCall[m.OffsetForLeaderEpochRequest]) -> m.OffsetForLeaderEpochResponse:
    """Answer where a leader epoch ended, so that a reader can detect that the log was truncated (KIP-320)."""
    # Brokers need no right to the topic.
    is_broker = is_allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

    def end_of(topic_partition: TopicPartition, entry: _WantedEpoch) -> _EpochEnd:
        if not is_broker:
            require(context, Operation.DESCRIBE, ResourceType.TOPIC, topic_partition.topic)
        log, _ = context.broker.led_log(topic_partition, context.now_ms, entry.current_leader_epoch)
        return log.end_offset_for_epoch(entry.leader_epoch)

    form = m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    topics = []
    for topic in context.body.topics:
        partitions = []
        for entry in topic.partitions:
            code, (epoch, end_offset) = ErrorCode.NONE, (NO_LEADER_EPOCH, _NO_OFFSET)
            try:
                epoch, end_offset = end_of(TopicPartition(topic.topic, entry.partition), entry)
            except KafkaError as error:
                code = error.code
            partitions.append(
                form.EpochEndOffset(
                    partition=entry.partition, error_code=code, leader_epoch=epoch, end_offset=end_offset
                )
            )
        topics.append(form(topic=topic.topic, partitions=partitions))
    return m.OffsetForLeaderEpochResponse(topics=topics)


def delete_records(context: ApiCall[m.DeleteRecordsRequest]) -> m.DeleteRecordsResponse:
    """Advance the log start offsets, at most to the high watermark (KIP-107)."""

    def cut(topic_partition: TopicPartition, offset: int) -> int:
        require(context, Operation.DELETE, ResourceType.TOPIC, topic_partition.topic)
        log, _ = context.broker.led_log(topic_partition, context.now_ms)
        low_watermark = log.delete_records_before(offset)
        context.broker.logs.appended(topic_partition)
        return low_watermark

    form = m.DeleteRecordsResponse.DeleteRecordsTopicResult
    topics = []
    entries = (
        (topic.name, entry.partition_index, entry) for topic in context.body.topics for entry in topic.partitions
    )
    for name, merged in _merged(entries):
        partitions = []
        for entry in merged:
            code, low_watermark = ErrorCode.NONE, _NO_OFFSET
            try:
                low_watermark = cut(TopicPartition(name, entry.partition_index), entry.offset)
            except KafkaError as error:
                code = error.code
            partitions.append(
                form.DeleteRecordsPartitionResult(
                    partition_index=entry.partition_index, error_code=code, low_watermark=low_watermark
                )
            )
        topics.append(form(name=name, partitions=partitions))
    return m.DeleteRecordsResponse(topics=topics)


def describe_producers(context: ApiCall[m.DescribeProducersRequest]) -> m.DescribeProducersResponse:
    """Describe each producer in a partition's state, with its open transaction (KIP-664, rules F.1).

    Every replica answers, not the leader alone.
    """
    response = m.DescribeProducersResponse
    topics = []
    for topic in context.body.topics:
        partitions = []
        for index in topic.partition_indexes:
            code, message, producers = ErrorCode.NONE, None, []
            try:
                check_topic_name(topic.name)
                require(context, Operation.READ, ResourceType.TOPIC, topic.name)
                _require_replica(context, TopicPartition(topic.name, index))
                producers = _producers(context.broker.logs.get(TopicPartition(topic.name, index), context.now_ms))
            except KafkaError as error:
                code, message = error.code, error.message or None
            partitions.append(
                response.TopicResponse.PartitionResponse(
                    partition_index=index, error_code=code, error_message=message, active_producers=producers
                )
            )
        topics.append(response.TopicResponse(name=topic.name, partitions=partitions))
    return response(topics=topics)


def _require_replica(context: RequestContext, topic_partition: TopicPartition) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER; as in Kafka, only an unknown topic has a message."""
    metadata = context.broker.metadata
    if not metadata.has_partition(topic_partition):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, "" if topic_partition.topic in metadata.topics else STANDARD_MESSAGES[code])
    if not context.broker.is_replica_of(topic_partition):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _producers(log: PartitionLog) -> list[_Producer]:
    form = _Producer
    return [
        form(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in log.producers()
    ]


APIS = (
    api(m.ListOffsetsRequest, (1, 11), list_offsets, needs(Operation.DESCRIBE, TOPIC), echoes=TOPICS),
    api(m.DeleteRecordsRequest, (0, 2), delete_records, needs(Operation.DELETE, TOPIC), echoes=TOPICS),
    api(
        m.OffsetForLeaderEpochRequest,
        (2, 4),
        offset_for_leader_epoch,
        needs_one((Operation.CLUSTER_ACTION, CLUSTER), (Operation.DESCRIBE, TOPIC)),
        echoes=TOPICS,
    ),
    api(
        m.DescribeProducersRequest,
        (0, 0),
        describe_producers,
        needs(Operation.READ, TOPIC),
        echoes=(Echo("topics", "topics", inner=INDEXES),),
    ),
)
