"""DescribeLogDirs and AlterReplicaLogDirs: there is one folder of logs, which all brokers share.

A broker describes and moves only the partitions that it is a replica of, as if the folder was its own.
"""

from collections.abc import Collection
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import require
from broker_core.broker.log_manager import folder_of
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import CLUSTER, needs
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.served import Echo

# While Kafka moves a partition, its new folder has a longer name: a dot, 32 digits and -future.
_ADDED_NAME_LENGTH = 40
_LONGEST_NAME = 255
_Topic: TypeAlias = m.DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic


def describe(context: ApiCall[m.DescribeLogDirsRequest]) -> m.DescribeLogDirsResponse:
    """Describe the folder and the sizes of this broker's partitions in it; all others are left out."""
    require(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    form, volume = m.DescribeLogDirsResponse.DescribeLogDirsResult, context.broker.logs.volume()
    return m.DescribeLogDirsResponse(
        results=[
            form(
                log_dir=volume.folder,
                topics=_wanted(context),
                total_bytes=volume.total_bytes,
                usable_bytes=volume.usable_bytes,
            )
        ]
    )


def _wanted(context: ApiCall[m.DescribeLogDirsRequest]) -> list[_Topic]:
    metadata, broker_id = context.broker.metadata, context.broker.broker_id
    topics = {
        name: [index for index, each in enumerate(topic.partitions) if broker_id in metadata.replicas(each)]
        for name, topic in metadata.topics.items()
    }
    if context.body.topics is None:
        return [_topic(context, name, indexes) for name, indexes in topics.items() if indexes]
    wanted: dict[str, set[int]] = {}
    for entry in context.body.topics:
        wanted.setdefault(entry.topic, set()).update(entry.partitions)
    found = {name: sorted(indexes & {*topics.get(name, ())}) for name, indexes in wanted.items()}
    return [_topic(context, name, indexes) for name, indexes in found.items() if indexes]


def _topic(context: RequestContext, name: str, indexes: Collection[int]) -> _Topic:
    logs = context.broker.logs
    return _Topic(
        name=name,
        partitions=[
            _Topic.DescribeLogDirsPartition(
                partition_index=index, partition_size=logs.size_bytes(TopicPartition(name, index), context.now_ms)
            )
            for index in indexes
        ],
    )


def alter(context: ApiCall[m.AlterReplicaLogDirsRequest]) -> m.AlterReplicaLogDirsResponse:
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
    return m.AlterReplicaLogDirsResponse(
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


APIS = (
    api(
        m.AlterReplicaLogDirsRequest,
        (1, 2),
        alter,
        needs(Operation.ALTER, CLUSTER),
        echoes=(
            Echo(
                "dirs.topics",
                "results",
                {"topic_name": "name"},
                inner=(Echo("partitions", "partitions", {"partition_index": ""}),),
            ),
        ),
    ),
    api(m.DescribeLogDirsRequest, (1, 5), describe, needs(Operation.DESCRIBE, CLUSTER)),
)
