"""The APIs that query logs without reading records (offsets, epoch ends, producers, folders), and DeleteRecords.

There is one folder of logs, which all brokers share. A broker describes and moves only the partitions that it is a
replica of, as if the folder was its own.
"""

from collections import Counter
from typing import Any, TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, require
from broker_core.broker.log_manager import folder_of
from broker_core.broker.partitions import check_topic_name
from broker_core.broker.request_context import ApiCall, RequestContext, isolation_of
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError, invalid_request
from broker_core.log.partition_log import PartitionLog
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import NO_LEADER_EPOCH, NO_TIMESTAMP, IsolationLevel, TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import Fields, response_to_each
from broker_core.wire.served import INDEXES, TOPICS, echo

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
_CONSUMER = -1
_NO_OFFSET = -1

_WantedOffset: TypeAlias = m.ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
_Trimmed: TypeAlias = m.DeleteRecordsRequest.DeleteRecordsTopic
_Producer: TypeAlias = m.DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState
_Found = tuple[int, int, int]
_NOTHING: _Found = (_NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH)


def list_offsets(context: ApiCall[m.ListOffsetsRequest]) -> m.ApiMessage:
    """Find offsets by timestamp or by special timestamp; for read_committed the end is the last stable offset."""
    named = Counter((topic.name, entry.partition_index) for topic in context.body.topics for entry in topic.partitions)

    def find(topic: m.ListOffsetsRequest.ListOffsetsTopic, entry: _WantedOffset) -> Fields:
        require(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        if named[topic.name, entry.partition_index] > 1:
            raise invalid_request("a partition is named twice")
        offset, timestamp, epoch = _find_offset(context, topic.name, entry)
        return {"offset": offset, "timestamp": timestamp, "leader_epoch": epoch}

    return response_to_each(context.request, find, _merged(context.body))


def _merged(body: m.ListOffsetsRequest | m.DeleteRecordsRequest) -> m.ApiMessage:
    """Return a request as Kafka reads it: a topic once if it has partitions, and each of them with its last entry."""
    found: dict[str, dict[int, Any]] = {}
    for topic in body.topics:
        for entry in topic.partitions:
            entries = found.setdefault(topic.name, {})
            entries[entry.partition_index] = entry
    form: Any = type(body.topics[0]) if body.topics else None
    topics = [form(name=name, partitions=[*entries.values()]) for name, entries in found.items()]
    return type(body)(topics=topics)


def _find_offset(context: ApiCall[m.ListOffsetsRequest], topic: str, entry: _WantedOffset) -> _Found:
    wanted = entry.timestamp
    if wanted < 0 and context.version < _SINCE.get(wanted, 2**15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted} is unknown in version {context.version}")
    log, leader_epoch = context.broker.led_log(
        TopicPartition(topic, entry.partition_index), context.now_ms, entry.current_leader_epoch
    )
    isolation = isolation_of(context.body.isolation_level)
    if context.body.replica_id != _CONSUMER:
        # A broker, or the debugging replica -2, finds all records.
        isolation = IsolationLevel.READ_UNCOMMITTED
    if wanted == _LATEST:
        return log.bound(isolation), NO_TIMESTAMP, leader_epoch
    if wanted in (_EARLIEST, _EARLIEST_LOCAL):
        return log.log_start_offset, NO_TIMESTAMP, log.leader_epochs.epoch_of(log.log_start_offset)
    if wanted in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = log.max_timestamp(isolation) if wanted == _MAX_TIMESTAMP else log.offset_for_timestamp(wanted, isolation)
    return found or _NOTHING


def offset_for_leader_epoch(context: ApiCall[m.OffsetForLeaderEpochRequest]) -> m.ApiMessage:
    """Answer where a leader epoch ended, so that a reader can detect that the log was truncated (KIP-320)."""
    # Brokers need no right to the topic.
    is_broker = is_allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

    def find(
        topic: m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic,
        entry: m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
    ) -> Fields:
        if not is_broker:
            require(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        place = TopicPartition(topic.topic, entry.partition)
        log, _ = context.broker.led_log(place, context.now_ms, entry.current_leader_epoch)
        epoch, end_offset = log.end_offset_for_epoch(entry.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end_offset}

    return response_to_each(context.request, find)


def delete_records(context: ApiCall[m.DeleteRecordsRequest]) -> m.ApiMessage:
    """Advance the log start offsets, at most to the high watermark (KIP-107)."""

    def delete(topic: _Trimmed, entry: _Trimmed.DeleteRecordsPartition) -> Fields:
        require(context, Operation.DELETE, ResourceType.TOPIC, topic.name)
        log, _ = context.broker.led_log(TopicPartition(topic.name, entry.partition_index), context.now_ms)
        low_watermark = log.delete_records_before(entry.offset)
        context.broker.logs.appended(log.topic_partition)
        return {"low_watermark": low_watermark}

    return response_to_each(context.request, delete, _merged(context.body))


def describe_producers(context: ApiCall[m.DescribeProducersRequest]) -> m.ApiMessage:
    """Describe each producer in a partition's state, with its open transaction (KIP-664, rules F.1).

    Every replica answers, not the leader alone.
    """

    def describe(topic: m.DescribeProducersRequest.TopicRequest, index: int) -> Fields:
        check_topic_name(topic.name)
        require(context, Operation.READ, ResourceType.TOPIC, topic.name)
        place = TopicPartition(topic.name, index)
        _require_replica(context, place)
        return {"active_producers": _producers(context.broker.logs.get(place, context.now_ms))}

    return response_to_each(context.request, describe)


def _require_replica(context: RequestContext, topic_partition: TopicPartition) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER; as in Kafka, only an unknown topic has a message."""
    metadata = context.broker.metadata
    if not metadata.has_partition(topic_partition):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, "" if topic_partition.topic in metadata.topics else STANDARD_MESSAGES[code])
    if not context.broker.is_replica_of(topic_partition):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _producers(log: PartitionLog) -> list[_Producer]:
    return [
        _Producer(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in log.producer_state.entries
    ]


# While Kafka moves a partition, its new folder has a longer name: a dot, 32 digits and -future.
_ADDED_NAME_LENGTH = 40
_LONGEST_NAME = 255
_LogDirTopic: TypeAlias = m.DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic


def describe_log_dirs(context: ApiCall[m.DescribeLogDirsRequest]) -> m.DescribeLogDirsResponse:
    """Describe the folder and the sizes of this broker's partitions in it; all others are left out."""
    require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    folder, total_bytes, usable_bytes = context.broker.logs.volume()
    result = m.DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir=folder, topics=_wanted_logs(context), total_bytes=total_bytes, usable_bytes=usable_bytes
    )
    return m.DescribeLogDirsResponse(results=[result])


def _wanted_logs(context: ApiCall[m.DescribeLogDirsRequest]) -> list[_LogDirTopic]:
    metadata, broker_id = context.broker.metadata, context.broker.broker_id
    topics = {
        name: [index for index, each in enumerate(topic.partitions) if broker_id in metadata.replicas(each)]
        for name, topic in metadata.topics.items()
    }
    if context.body.topics is not None:
        wanted: dict[str, set[int]] = {}
        for entry in context.body.topics:
            wanted.setdefault(entry.topic, set()).update(entry.partitions)
        topics = {name: sorted(indexes & {*topics.get(name, ())}) for name, indexes in wanted.items()}

    def partition(place: TopicPartition) -> _LogDirTopic.DescribeLogDirsPartition:
        size_bytes = context.broker.logs.size_bytes(place, context.now_ms)
        return _LogDirTopic.DescribeLogDirsPartition(partition_index=place.partition, partition_size=size_bytes)

    return [
        _LogDirTopic(name=name, partitions=[partition(TopicPartition(name, index)) for index in indexes])
        for name, indexes in topics.items()
        if indexes
    ]


def alter_log_dirs(context: ApiCall[m.AlterReplicaLogDirsRequest]) -> m.AlterReplicaLogDirsResponse:
    """Accept a move of partitions to the folder that they are in; there is no other one."""
    require(context, Operation.ALTER, ResourceType.CLUSTER)
    folder = context.broker.logs.volume().folder
    # As in Kafka, the last folder counts for a partition that is named with two.
    targets = {
        TopicPartition(topic.name, index): entry.path
        for entry in context.body.dirs
        for topic in entry.topics
        for index in topic.partitions
    }
    codes: dict[str, dict[int, ErrorCode]] = {}
    for topic_partition, path in targets.items():
        code = ErrorCode.NONE
        if len(folder_of(topic_partition)) + _ADDED_NAME_LENGTH > _LONGEST_NAME:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif path != folder:
            code = ErrorCode.LOG_DIR_NOT_FOUND
        elif not context.broker.metadata.has_partition(topic_partition):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not context.broker.is_replica_of(topic_partition):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        codes.setdefault(topic_partition.topic, {})[topic_partition.partition] = code
    form = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    partition = form.AlterReplicaLogDirPartitionResult
    results = [
        form(topic_name=name, partitions=[partition(partition_index=i, error_code=code) for i, code in found.items()])
        for name, found in codes.items()
    ]
    return m.AlterReplicaLogDirsResponse(results=results)


APIS = (
    api(m.ListOffsetsRequest, (1, 11), list_offsets, "DESCRIBE TOPIC", echoes=TOPICS),
    api(m.DeleteRecordsRequest, (0, 2), delete_records, "DELETE TOPIC", echoes=TOPICS),
    api(
        m.OffsetForLeaderEpochRequest,
        (2, 4),
        offset_for_leader_epoch,
        "CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC",
        echoes=TOPICS,
    ),
    api(m.DescribeProducersRequest, (0, 0), describe_producers, "READ TOPIC", echoes=echo("topics", "topics", INDEXES)),
    api(
        m.AlterReplicaLogDirsRequest,
        (1, 2),
        alter_log_dirs,
        "ALTER CLUSTER",
        echoes=echo("dirs.topics", "results", echo("partitions", partition_index=""), topic_name="name"),
    ),
    api(m.DescribeLogDirsRequest, (1, 5), describe_log_dirs, "DESCRIBE CLUSTER"),
)
