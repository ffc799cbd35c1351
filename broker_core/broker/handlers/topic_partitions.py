"""DescribeTopicPartitions, which describes topics in pages (KIP-966)."""

from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, operation_bits, refusal
from broker_core.broker.partitions import Topic, check_topic_name
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.errors import ErrorCode, KafkaError
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import TOPIC, needs
from broker_core.types import INTERNAL_TOPICS
from broker_core.wire import messages as m
from broker_core.wire.error_responses import error_response
from broker_core.wire.served import Echo

_Described: TypeAlias = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


def describe(context: ApiCall[m.DescribeTopicPartitionsRequest]) -> m.DescribeTopicPartitionsResponse:
    """Describe topics in the order of their names, from the cursor on, up to the limit of partitions."""
    body, form = context.body, m.DescribeTopicPartitionsResponse
    cursor = body.cursor
    wants_all = not body.topics
    first = "" if cursor is None else cursor.topic_name
    known = context.broker.metadata.topics
    names = sorted(name for name in (known if wants_all else {topic.name for topic in body.topics}) if name >= first)
    if cursor is not None and (cursor.partition_index < 0 or not (wants_all or first in names)):
        wrong_cursor: m.DescribeTopicPartitionsResponse = error_response(context.request, ErrorCode.INVALID_REQUEST)
        return wrong_cursor
    topics, refused, next_cursor = [], [], None
    remaining = max(min(context.broker.config.max_request_partition_size_limit, body.response_partition_limit), 1)
    for name in names:
        if not _may_describe(context, name, wants_all):
            if not wants_all:
                refused.append(_without_partitions(context, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if next_cursor is not None:
            continue
        if remaining == 0:
            next_cursor = form.Cursor(topic_name=name)
            continue
        if name not in known:
            topics.append(_without_partitions(context, name, _why_unknown(name)))
            continue
        start = cursor.partition_index if name == first and cursor is not None else 0
        end = min(len(known[name].partitions), start + remaining)
        topics.append(_described(context, known[name], start, end))
        remaining -= max(end - start, 0)
        if end < len(known[name].partitions):
            next_cursor = form.Cursor(topic_name=name, partition_index=end)
    return form(topics=topics + refused, next_cursor=next_cursor)


def _may_describe(context: RequestContext, name: str, wants_all: bool) -> bool:
    if wants_all:
        return is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    return refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name) is ErrorCode.NONE


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _without_partitions(context: RequestContext, name: str, code: ErrorCode) -> _Described:
    operations = {}
    if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        operations["topic_authorized_operations"] = operation_bits(context, ResourceType.TOPIC, name)
    return _Described(
        error_code=code,
        name=name,
        topic_id=m.NULL_UUID,
        is_internal=name in INTERNAL_TOPICS and bool(operations),
        partitions=[],
        **operations,
    )


def _described(context: RequestContext, topic: Topic, start: int, end: int) -> _Described:
    form = _Described
    cluster = context.broker.metadata
    return form(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            form.DescribeTopicPartitionsResponsePartition(
                # Unlike Metadata, Kafka answers no error for a partition without a leader.
                partition_index=index,
                leader_id=leadership.leader,
                leader_epoch=leadership.leader_epoch,
                replica_nodes=list(cluster.replicas(leadership)),
                isr_nodes=cluster.in_sync(leadership),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=cluster.offline(leadership),
            )
            for index, leadership in enumerate(topic.partitions[start:end], start)
        ],
        topic_authorized_operations=operation_bits(context, ResourceType.TOPIC, topic.name),
    )


APIS = (
    api(
        m.DescribeTopicPartitionsRequest,
        (0, 0),
        describe,
        needs(Operation.DESCRIBE, TOPIC),
        echoes=(Echo("topics", "topics"),),
    ),
)
