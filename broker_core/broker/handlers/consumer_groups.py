"""The APIs of the consumer group protocol (KIP-848): heartbeats, and descriptions for administrators."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import only_allowed, require
from broker_core.broker.feature_levels import GROUP_VERSION
from broker_core.broker.handlers.modern_groups import (
    answer_descriptions,
    answer_heartbeat,
    described,
    named_assignment,
    refused_topic,
)
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.consumer.records import TopicIdPartition
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribedConsumer,
)
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.security.checks import GROUP, TOPIC, needs
from broker_core.wire import messages as m
from broker_core.wire.served import Echo

_FIRST_WITH_MEMBER_ID = 1
_OwnedTopic: TypeAlias = m.ConsumerGroupHeartbeatRequest.TopicPartitions
_Member: TypeAlias = m.ConsumerGroupDescribeResponse.DescribedGroup.Member
_CLASSIC_PROTOCOL, _CONSUMER_PROTOCOL = 0, 1


def heartbeat(context: ApiCall[m.ConsumerGroupHeartbeatRequest]) -> m.ConsumerGroupHeartbeatResponse | None:
    """Handle a heartbeat: a member joins, stays, or leaves."""
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
            may_see=only_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC),
        ),
        context.now_ms,
    )
    answer_heartbeat(context, result)
    return None


def describe(context: ApiCall[m.ConsumerGroupDescribeRequest]) -> None:
    answer_descriptions(context, _described, _member)


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


APIS = (
    # A regular expression matches only topics that the client may describe.
    api(
        m.ConsumerGroupHeartbeatRequest,
        (0, 1),
        heartbeat,
        needs(Operation.READ, GROUP),
        needs(Operation.DESCRIBE, TOPIC),
    ),
    api(
        m.ConsumerGroupDescribeRequest,
        (0, 1),
        describe,
        needs(Operation.DESCRIBE, GROUP),
        needs(Operation.DESCRIBE, TOPIC),
        echoes=(Echo("group_ids", "groups", {"group_id": ""}),),
    ),
)
