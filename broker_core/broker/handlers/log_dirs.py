"""DescribeLogDirs and AlterReplicaLogDirs: there is one folder of logs, which all brokers share."""

from collections.abc import Collection
from typing import Any

from broker_core.broker.authorization import require
from broker_core.broker.log_manager import folder_of
from broker_core.broker.metadata import Topic
from broker_core.broker.request_context import RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_response

# While Kafka moves a partition, its new folder has a longer name: a dot, 32 digits and -future.
_ADDED_NAME_LENGTH = 40
_LONGEST_NAME = 255


def describe(context: RequestContext) -> None:
    """Describe the folder and the sizes of the partitions in it; unknown partitions are left out."""
    try:
        require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        context.answer(m.DescribeLogDirsResponse(error_code=error.code, results=[]))
        return
    form, volume = m.DescribeLogDirsResponse.DescribeLogDirsResult, context.broker.logs.volume()
    context.answer(
        m.DescribeLogDirsResponse(
            error_code=ErrorCode.NONE,
            results=[
                form(
                    error_code=ErrorCode.NONE,
                    log_dir=volume.folder,
                    topics=_wanted(context),
                    total_bytes=volume.total_bytes,
                    usable_bytes=volume.usable_bytes,
                    is_cordoned=False,
                )
            ],
        )
    )


def _wanted(context: RequestContext) -> list[Any]:
    topics = context.broker.metadata.topics
    if context.body.topics is None:
        return [_topic(context, topic, range(len(topic.partitions))) for topic in topics.values()]
    wanted: dict[str, set[int]] = {}
    for entry in context.body.topics:
        wanted.setdefault(entry.topic, set()).update(entry.partitions)
    found = {
        name: sorted(indexes & set(range(len(topics[name].partitions))))
        for name, indexes in wanted.items()
        if name in topics
    }
    return [_topic(context, topics[name], indexes) for name, indexes in found.items() if indexes]


def _topic(context: RequestContext, topic: Topic, indexes: Collection[int]) -> Any:
    form, logs = m.DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic, context.broker.logs
    return form(
        name=topic.name,
        partitions=[
            form.DescribeLogDirsPartition(
                partition_index=index,
                partition_size=logs.size_bytes(TopicPartition(topic.name, index), context.now_ms),
                offset_lag=0,
                is_future_key=False,
            )
            for index in indexes
        ],
    )


def alter(context: RequestContext) -> None:
    """Accept a move of partitions to the folder that they are in; there is no other one."""
    try:
        require(context, Operation.ALTER, ResourceType.CLUSTER)
    except KafkaError as error:
        context.answer(error_response(context.request, error.code))
        return
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
        codes.setdefault(topic_partition.topic, {})[topic_partition.partition] = code
    form = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    context.answer(
        m.AlterReplicaLogDirsResponse(
            results=[
                form(
                    topic_name=name,
                    partitions=[
                        form.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                        for index, code in found.items()
                    ],
                )
                for name, found in codes.items()
            ]
        )
    )
