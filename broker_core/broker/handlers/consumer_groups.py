"""The APIs of the consumer group protocol (KIP-848): heartbeats, and descriptions for administrators."""

from collections.abc import Collection
from typing import Any

from broker_core.broker.authorization import allowed_operations, is_allowed, only_allowed, refusal
from broker_core.broker.features import GROUP_VERSION
from broker_core.broker.request_context import RequestContext
from broker_core.coordinator.groups.consumer.records import TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribedConsumer,
)
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m

_NOBODY_ASKED = -(2**31)
_FIRST_WITH_MEMBER_ID = 1
_CONSUMER_PROTOCOL = 1


def heartbeat(context: RequestContext) -> None:
    """Handle a heartbeat: a member joins, stays, or leaves."""
    body, response = context.body, m.ConsumerGroupHeartbeatResponse
    if not _is_enabled(context):
        context.answer(response(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    topics = body.subscribed_topic_names
    refused = _refusal(context)
    if refused:
        context.answer(response(error_code=refused))
        return
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
            regex=body.subscribed_topic_regex if context.version >= 1 else None,
            server_assignor=body.server_assignor,
            owned=_owned(body.topic_partitions),
            may_lack_member_id=context.version < _FIRST_WITH_MEMBER_ID,
            may_see=only_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC),
        ),
        context.now_ms,
    )
    form = response.Assignment
    assignment = (
        None
        if result.assigned is None
        else form(
            topic_partitions=[
                form.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in partitions_by_topic(result.assigned).items()
            ]
        )
    )
    context.answer(
        response(
            error_code=result.error,
            error_message=result.message,
            member_id=result.member_id,
            member_epoch=result.member_epoch,
            heartbeat_interval_ms=result.heartbeat_interval_ms,
            assignment=assignment,
        )
    )


def _refusal(context: RequestContext) -> ErrorCode:
    refused = refusal(context, Operation.READ, ResourceType.GROUP, context.body.group_id)
    names = context.body.subscribed_topic_names or ()
    verdicts = (refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)
    return refused or next((verdict for verdict in verdicts if verdict), ErrorCode.NONE)


def describe(context: RequestContext) -> None:
    """Describe consumer groups."""
    response = m.ConsumerGroupDescribeResponse
    form = response.DescribedGroup
    groups = []
    for group_id in context.body.group_ids:
        found = _described(context, group_id)
        asked = context.body.include_authorized_operations and found.error == ErrorCode.NONE
        groups.append(
            form(
                error_code=found.error,
                error_message=found.message,
                group_id=group_id,
                group_state=found.state,
                group_epoch=found.epoch,
                assignment_epoch=found.target_epoch,
                assignor_name=found.assignor,
                members=[_member(context, member) for member in found.members],
                authorized_operations=sum(
                    1 << number for number in allowed_operations(context, ResourceType.GROUP, group_id)
                )
                if asked
                else _NOBODY_ASKED,
            )
        )
    context.answer(response(groups=groups))


def _described(context: RequestContext, group_id: str) -> ConsumerGroupDescription:
    if not _is_enabled(context):
        return ConsumerGroupDescription(group_id, ErrorCode.UNSUPPORTED_VERSION)
    refused = refusal(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
    if refused:
        return ConsumerGroupDescription(group_id, refused)
    found = context.broker.groups.describe_consumer_group(group_id)
    names = context.broker.metadata.names
    held = {entry.topic_id for member in found.members for entry in (*member.assigned, *member.target)}
    if all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, names[each]) for each in held if each in names):
        return found
    # A description with only some of its topics would be wrong, so one forbidden topic hides the whole group.
    return ConsumerGroupDescription(
        group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
    )


def _is_enabled(context: RequestContext) -> bool:
    return context.broker.metadata.features[GROUP_VERSION] > 0


def _owned(topic_partitions: Any) -> frozenset[TopicIdPartition] | None:
    if topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, partition) for topic in topic_partitions for partition in topic.partitions
    )


def _member(context: RequestContext, member: DescribedConsumer) -> Any:
    form = m.ConsumerGroupDescribeResponse.DescribedGroup.Member
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
        assignment=_assignment(context, form.Assignment, member.assigned),
        target_assignment=_assignment(context, form.Assignment, member.target),
        member_type=_CONSUMER_PROTOCOL,
    )


def _assignment(context: RequestContext, form: Any, partitions: Collection[TopicIdPartition]) -> Any:
    """Return the assignment with topic names; topics deleted meanwhile are left out, as in Kafka."""
    names = context.broker.metadata.names
    return form(
        topic_partitions=[
            form.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=numbers)
            for topic_id, numbers in partitions_by_topic(partitions).items()
            if topic_id in names
        ]
    )
