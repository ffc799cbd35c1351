"""The APIs of the consumer group protocol (KIP-848): heartbeats, and descriptions for administrators.

Share groups (KIP-932) share the parts of their responses.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar
from uuid import UUID

from broker_core.broker.api import api
from broker_core.broker.authorization import (
    OPERATIONS_NOT_REQUESTED,
    is_allowed,
    may_see_topics,
    operation_bits,
    refusal,
    require,
)
from broker_core.broker.feature_levels import GROUP_VERSION
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.consumer.records import TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    GroupDescription,
)
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from broker_core.wire.served import echo

_FIRST_WITH_MEMBER_ID = 1
_OwnedTopic: TypeAlias = m.ConsumerGroupHeartbeatRequest.TopicPartitions
_Member: TypeAlias = m.ConsumerGroupDescribeResponse.DescribedGroup.Member
_CLASSIC_PROTOCOL, _CONSUMER_PROTOCOL = 0, 1


def heartbeat(context: ApiCall[m.ConsumerGroupHeartbeatRequest]) -> m.ApiMessage:
    body, response = context.body, m.ConsumerGroupHeartbeatResponse
    if not _is_enabled(context):
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    topics = body.subscribed_topic_names
    require(context, Operation.READ, ResourceType.GROUP, body.group_id)
    refused = refused_topic(context)
    if refused:
        return response(error_code=refused)
    result = context.broker.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=body.group_id,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            topics=None if topics is None else tuple(topics),
            regex=body.subscribed_topic_regex,
            server_assignor=body.server_assignor,
            owned=_owned(body.topic_partitions),
            may_lack_member_id=context.version < _FIRST_WITH_MEMBER_ID,
            may_see=may_see_topics(context),
        ),
        context.now_ms,
    )
    return heartbeat_answer(context, result)


def describe(context: ApiCall[m.ConsumerGroupDescribeRequest]) -> m.ApiMessage:
    return descriptions(context, _described, _member)


def _described(context: RequestContext, group_id: str) -> ConsumerGroupDescription:
    names = context.broker.metadata.names

    def topics_of(member: DescribedConsumer) -> Iterator[str | None]:
        return (names.get(each.topic_id) for each in (*member.assigned, *member.target))

    find = context.broker.groups.describe_consumer_group
    return described(context, group_id, find, topics_of, is_enabled=_is_enabled(context))


def _is_enabled(context: RequestContext) -> bool:
    return context.broker.metadata.features[GROUP_VERSION] > 0


def _owned(topic_partitions: Iterable[_OwnedTopic] | None) -> frozenset[TopicIdPartition] | None:
    if topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id or m.NULL_UUID, partition)
        for topic in topic_partitions
        for partition in topic.partitions
    )


def _member(context: RequestContext, member: DescribedConsumer) -> _Member:
    form = _Member
    subscription = member.subscription
    return form(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.member_epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.topics),
        subscribed_topic_regex=subscription.regex,
        assignment=named_assignment(context.broker.metadata.names, form.Assignment, member.assigned),
        target_assignment=named_assignment(context.broker.metadata.names, form.Assignment, member.target),
        member_type=_CONSUMER_PROTOCOL if subscription.classic is None else _CLASSIC_PROTOCOL,
    )


MemberT = TypeVar("MemberT")
Assignment = TypeVar(
    "Assignment",
    m.ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment,
    m.ShareGroupDescribeResponse.DescribedGroup.Member.Assignment,
)


def refused_topic(context: ApiCall[m.ConsumerGroupHeartbeatRequest | m.ShareGroupHeartbeatRequest]) -> ErrorCode:
    """Return the error for the first topic of a heartbeat that the client may not describe."""
    names = context.body.subscribed_topic_names or ()
    verdicts = (refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)
    return next((verdict for verdict in verdicts if verdict), ErrorCode.NONE)


def heartbeat_answer(context: RequestContext, result: ConsumerHeartbeatResult) -> m.ApiMessage:
    response = context.request.api.response
    form = response.Assignment
    topics = [
        form.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in partitions_by_topic(result.assigned or ()).items()
    ]
    answer: m.ApiMessage = response(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assigned is None else form(topic_partitions=topics),
    )
    return answer


def descriptions(
    context: ApiCall[m.ConsumerGroupDescribeRequest | m.ShareGroupDescribeRequest],
    describe: Callable[[RequestContext, str], GroupDescription[MemberT]],
    form_of: Callable[[RequestContext, MemberT], m.DataContainer],
) -> m.ApiMessage:
    """Describe the groups that a request names; `form_of` returns a member as the response has it."""
    response = context.request.api.response
    groups = []
    for group_id in context.body.group_ids:
        found = describe(context, group_id)
        asked = context.body.include_authorized_operations and found.error == ErrorCode.NONE
        groups.append(
            response.DescribedGroup(
                error_code=found.error,
                error_message=found.message,
                group_id=group_id,
                group_state=found.state,
                group_epoch=found.epoch,
                assignment_epoch=found.target_epoch,
                assignor_name=found.assignor,
                members=[form_of(context, member) for member in found.members],
                authorized_operations=operation_bits(context, ResourceType.GROUP, group_id)
                if asked
                else OPERATIONS_NOT_REQUESTED,
            )
        )
    answer: m.ApiMessage = response(groups=groups)
    return answer


def described(
    context: RequestContext,
    group_id: str,
    find: Callable[[str], GroupDescription[MemberT]],
    topics_of: Callable[[MemberT], Iterable[str | None]],
    *,
    is_enabled: bool,
) -> GroupDescription[MemberT]:
    """Return the description of a group, or the error that hides it from the client.

    `topics_of` returns the topics that a member's description names, None for one that was deleted.
    """
    if not is_enabled:
        return GroupDescription(group_id, ErrorCode.UNSUPPORTED_VERSION)
    refused = refusal(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    if refused:
        return GroupDescription(group_id, refused)
    found = find(group_id)
    names = {name for member in found.members for name in topics_of(member) if name is not None}
    if all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return found
    # A description with only some of its topics would be wrong, so one forbidden topic hides the whole group.
    return GroupDescription(
        group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
    )


def named_assignment(
    names: Mapping[UUID, str], form: type[Assignment], partitions: Collection[TopicIdPartition]
) -> Assignment:
    """Return the assignment with topic names; topics deleted meanwhile are left out, as in Kafka."""
    return form(
        topic_partitions=[
            form.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=numbers)
            for topic_id, numbers in partitions_by_topic(partitions).items()
            if topic_id in names
        ]
    )


APIS = (
    # A regular expression matches only topics that the client may describe.
    api(m.ConsumerGroupHeartbeatRequest, (0, 1), heartbeat, "READ GROUP", "DESCRIBE TOPIC"),
    api(
        m.ConsumerGroupDescribeRequest,
        (0, 1),
        describe,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        echoes=echo("group_ids", "groups", group_id=""),
    ),
)
