"""The APIs by which administrators describe, alter and delete the start offsets of share groups (KIP-932, KIP-1226)."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import is_allowed, refusal
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.groups.groups import share_groups
from broker_core.features.share_groups.groups.offsets import UNKNOWN, ShareOffsets
from broker_core.features.share_groups.handlers.groups import is_enabled
from broker_core.features.share_groups.states.state import (
    UNINITIALIZED,
    Outcome,
    SharePartitionKey,
    ShareState,
    standard_error,
)
from broker_core.security.acls import Operation, ResourceType
from broker_core.types import TopicPartition
from broker_core.wire import messages as m
from broker_core.wire.served import echo

_UNKNOWN_LAG = -1
_DescribedGroup: TypeAlias = m.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_DescribedTopic: TypeAlias = _DescribedGroup.DescribeShareGroupOffsetsResponseTopic
_WantedGroup: TypeAlias = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_AlteredTopic: TypeAlias = m.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic


def _offsets(context: RequestContext) -> ShareOffsets:
    return share_groups(context.broker.groups).offsets


def describe(context: ApiCall[m.DescribeShareGroupOffsetsRequest]) -> m.DescribeShareGroupOffsetsResponse:
    groups = [_described_group(context, group) for group in context.body.groups]
    return m.DescribeShareGroupOffsetsResponse(groups=groups)


def _described_group(context: RequestContext, group: _WantedGroup) -> _DescribedGroup:
    error = _group_error(context, Operation.DESCRIBE, group.group_id)
    topics: list[_DescribedTopic] = []
    message = None
    if not error:
        try:
            topics = _all_topics(context, group.group_id) if group.topics is None else _named_topics(context, group)
        except KafkaError as failure:
            error, message = Outcome.of(failure.code)
    return _DescribedGroup(group_id=group.group_id, topics=topics, error_code=error, error_message=message)


def _group_error(context: RequestContext, operation: Operation, group_id: str) -> ErrorCode:
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    return refusal(context, operation, ResourceType.GROUP, group_id)


def _all_topics(context: RequestContext, group_id: str) -> list[_DescribedTopic]:
    names = context.broker.metadata.names
    return [
        _described_topic(context, group_id, names[topic_id], topic_id, sorted(partitions))
        for topic_id, partitions in _offsets(context).initialized_partitions(group_id).items()
        if topic_id in names and is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, names[topic_id])
    ]


def _named_topics(context: RequestContext, group: _WantedGroup) -> list[_DescribedTopic]:
    form = _DescribedTopic
    partition_form = form.DescribeShareGroupOffsetsResponsePartition
    described, unknown, forbidden = [], [], []
    for topic in group.topics or ():
        name = topic.topic_name
        refused = refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        known = context.broker.metadata.topics.get(name)
        if refused:
            partitions = [
                partition_form(partition_index=each, error_code=refused, error_message=Outcome.of(refused).message)
                for each in topic.partitions
            ]
            forbidden.append(form(topic_name=name, topic_id=m.NULL_UUID, partitions=partitions))
        elif known is None:
            partitions = [partition_form(partition_index=each, start_offset=UNINITIALIZED) for each in topic.partitions]
            unknown.append(form(topic_name=name, topic_id=m.NULL_UUID, partitions=partitions))
        else:
            described.append(_described_topic(context, group.group_id, name, known.topic_id, topic.partitions))
    return [*described, *unknown, *forbidden]


def _described_topic(
    context: RequestContext, group_id: str, name: str, topic_id: UUID, partitions: list[int]
) -> _DescribedTopic:
    form = _DescribedTopic
    described = []
    for partition in partitions:
        key, found = SharePartitionKey(group_id, topic_id, partition), ShareState()
        with suppress(KafkaError):
            found = share_broker(context.broker).coordinator_of(key).summarize(key)
        lag, error = _lag(context, TopicPartition(name, partition), found)
        described.append(
            form.DescribeShareGroupOffsetsResponsePartition(
                partition_index=partition,
                start_offset=0 if error else found.start_offset,
                leader_epoch=0 if error else found.leader_epoch,
                lag=lag,
                error_code=error,
                error_message=Outcome.of(error).message,
            )
        )
    return form(topic_name=name, topic_id=topic_id, partitions=described)


def _lag(context: RequestContext, topic_partition: TopicPartition, found: ShareState) -> tuple[int, ErrorCode]:
    """Return the number of records that are not done, -1 where it is not known."""
    if UNINITIALIZED in (found.start_offset, found.delivery_complete_count):
        return _UNKNOWN_LAG, ErrorCode.NONE
    try:
        log = context.broker.logs.get(topic_partition, context.now_ms)
    except KafkaError as error:
        return _UNKNOWN_LAG, error.code
    return log.high_watermark - found.start_offset - found.delivery_complete_count, ErrorCode.NONE


def alter(context: ApiCall[m.AlterShareGroupOffsetsRequest]) -> m.ApiMessage:
    body, response = context.body, m.AlterShareGroupOffsetsResponse
    error = _group_error(context, Operation.READ, body.group_id)
    if error:
        return _refused(context, standard_error(error))
    topics = {topic.topic_name: {each.partition_index: each for each in topic.partitions} for topic in body.topics}
    ids = {name: topic.topic_id for name, topic in context.broker.metadata.topics.items()}
    refused: dict[str, ErrorCode] = {}
    offsets: dict[TopicIdPartition, int] = {}
    for name, entries in topics.items():
        code = refusal(context, Operation.READ, ResourceType.TOPIC, name)
        if code or name not in ids:
            refused[name] = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        for index, entry in entries.items():
            if context.broker.metadata.has_partition(TopicPartition(name, index)):
                offsets[TopicIdPartition(ids[name], index)] = entry.start_offset
    try:
        wanted = _offsets(context).alter(body.group_id, offsets, context.now_ms)
    except KafkaError as failure:
        return _refused(context, failure)
    outcomes = share_broker(context.broker).initialize(wanted, context.now_ms) if offsets else {}
    altered = [
        _altered_topic(name, ids.get(name, m.NULL_UUID), entries, refused.get(name), outcomes)
        for name, entries in topics.items()
    ]
    return response(error_code=ErrorCode.NONE, error_message=None, responses=altered)


def _refused(context: RequestContext, error: KafkaError) -> m.ApiMessage:
    message, response = error.message or Outcome.of(error.code).message, context.request.api.response
    refused: m.ApiMessage = response(error_code=error.code, error_message=message, responses=[])
    return refused


def _altered_topic(
    name: str,
    topic_id: UUID,
    indexes: Iterable[int],
    refused: ErrorCode | None,
    outcomes: Mapping[TopicIdPartition, Outcome],
) -> _AlteredTopic:
    form = _AlteredTopic
    partitions = []
    for index in indexes:
        outcome = Outcome.of(refused) if refused else outcomes.get(TopicIdPartition(topic_id, index), UNKNOWN)
        partitions.append(
            form.AlterShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=outcome.error, error_message=outcome.message
            )
        )
    return form(topic_name=name, topic_id=topic_id, partitions=partitions)


def delete(context: ApiCall[m.DeleteShareGroupOffsetsRequest]) -> m.ApiMessage:
    body, response = context.body, m.DeleteShareGroupOffsetsResponse
    form = response.DeleteShareGroupOffsetsResponseTopic
    error = _group_error(context, Operation.DELETE, body.group_id)
    if error:
        return _refused(context, standard_error(error))
    forbidden = {
        topic.topic_name: code
        for topic in body.topics
        if (code := refusal(context, Operation.READ, ResourceType.TOPIC, topic.topic_name))
    }
    names = [topic.topic_name for topic in body.topics if topic.topic_name not in forbidden]
    try:
        deletion, refused = _offsets(context).begin_deletion_of_offsets(body.group_id, names, context.now_ms)
    except KafkaError as failure:
        return _refused(context, failure)
    outcomes = share_broker(context.broker).delete_states(deletion)
    failed = {each.topic_id: outcome.error for each, outcome in outcomes.items() if outcome.error}
    _offsets(context).deleted(body.group_id, deletion.topic_ids - failed.keys(), context.now_ms)
    known = context.broker.metadata.names
    outcomes_by_topic = [
        (known.get(topic_id, ""), topic_id, Outcome.of(failed.get(topic_id, ErrorCode.NONE)))
        for topic_id in sorted(deletion.topic_ids)
    ]
    outcomes_by_topic += [(name, m.NULL_UUID, outcome) for name, outcome in refused.items()]
    outcomes_by_topic += [(name, m.NULL_UUID, Outcome.of(code)) for name, code in forbidden.items()]
    results = [
        form(topic_name=name, topic_id=topic_id, error_code=code, error_message=message)
        for name, topic_id, (code, message) in outcomes_by_topic
    ]
    return response(error_code=ErrorCode.NONE, error_message=None, responses=results)


APIS = (
    api(
        m.DescribeShareGroupOffsetsRequest, (0, 1), describe, "DESCRIBE GROUP", "DESCRIBE TOPIC", echoes=echo("groups")
    ),
    api(m.AlterShareGroupOffsetsRequest, (0, 0), alter, "READ GROUP", "READ TOPIC"),
    api(m.DeleteShareGroupOffsetsRequest, (0, 0), delete, "DELETE GROUP", "READ TOPIC"),
)
