"""The APIs of share groups (KIP-932): heartbeats, and descriptions for administrators."""

from collections.abc import Iterator
from typing import TypeAlias

from broker_core.broker.api import api
from broker_core.broker.authorization import refusal
from broker_core.broker.feature_levels import SHARE_VERSION
from broker_core.broker.handlers.consumer_groups import (
    described,
    descriptions,
    heartbeat_answer,
    named_assignment,
    refused_topic,
)
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.consumer.requests import GroupDescription
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.broker_parts import share_broker
from broker_core.features.share_groups.groups.group import ShareMember
from broker_core.features.share_groups.groups.groups import share_groups
from broker_core.features.share_groups.groups.requests import ShareHeartbeat
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from broker_core.wire.served import echo

_LONGEST_MEMBER_ID = 36
_Member: TypeAlias = m.ShareGroupDescribeResponse.DescribedGroup.Member


def is_enabled(context: RequestContext) -> bool:
    """Return whether the cluster's features include share groups; without them nothing is in flight."""
    if context.broker.metadata.features[SHARE_VERSION] > 0:
        return True
    share_broker(context.broker).partitions.forget_all()
    return False


def is_member_id(member_id: str | None) -> bool:
    return bool(member_id) and len(member_id or "") <= _LONGEST_MEMBER_ID


def heartbeat(context: ApiCall[m.ShareGroupHeartbeatRequest]) -> m.ApiMessage | None:
    body, response = context.body, m.ShareGroupHeartbeatResponse
    error = _heartbeat_error(context)
    if error:
        return response(error_code=error)
    names = body.subscribed_topic_names
    result = share_groups(context.broker.groups).heartbeat(
        ShareHeartbeat(
            group_id=body.group_id,
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            rack_id=body.rack_id,
            topics=None if names is None else tuple(names),
        ),
        context.now_ms,
    )
    context.answer(heartbeat_answer(context, result))
    if result.initialization is not None:
        # The partitions are assigned with a later heartbeat.
        share_broker(context.broker).initialize(result.initialization, context.now_ms)
    return None


def _heartbeat_error(context: ApiCall[m.ShareGroupHeartbeatRequest]) -> ErrorCode:
    body = context.body
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    refused = refusal(context, Operation.READ, ResourceType.GROUP, body.group_id)
    if refused:
        return refused
    if not is_member_id(body.member_id):
        return ErrorCode.INVALID_REQUEST
    return refused_topic(context)


def describe(context: ApiCall[m.ShareGroupDescribeRequest]) -> m.ApiMessage:
    return descriptions(context, _described, _member)


def _described(context: RequestContext, group_id: str) -> GroupDescription[ShareMember]:
    names = context.broker.metadata.names

    def topics_of(member: ShareMember) -> Iterator[str | None]:
        yield from member.subscription.topics
        yield from (names.get(each.topic_id) for each in member.assigned)

    find = share_groups(context.broker.groups).describe
    return described(context, group_id, find, topics_of, is_enabled=is_enabled(context))


def _member(context: RequestContext, member: ShareMember) -> _Member:
    form = _Member
    subscription = member.subscription
    return form(
        member_id=member.member_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.topics),
        assignment=named_assignment(context.broker.metadata.names, form.Assignment, member.assigned),
    )


APIS = (
    api(m.ShareGroupHeartbeatRequest, (1, 1), heartbeat, "READ GROUP", "DESCRIBE TOPIC"),
    api(
        m.ShareGroupDescribeRequest,
        (1, 1),
        describe,
        "DESCRIBE GROUP",
        "DESCRIBE TOPIC",
        echoes=echo("group_ids", "groups", group_id=""),
    ),
)
