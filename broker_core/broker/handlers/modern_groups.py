"""The parts of responses that consumer groups (KIP-848) and share groups (KIP-932) have in common."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from broker_core.broker.authorization import OPERATIONS_NOT_REQUESTED, is_allowed, operation_bits, refusal
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.consumer.records import TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.consumer.requests import ConsumerHeartbeatResult, GroupDescription
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m

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


def answer_heartbeat(context: RequestContext, result: ConsumerHeartbeatResult) -> None:
    response = context.request.api.response
    form = response.Assignment
    topics = [
        form.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in partitions_by_topic(result.assigned or ()).items()
    ]
    context.answer(
        response(
            error_code=result.error,
            error_message=result.message,
            member_id=result.member_id,
            member_epoch=result.member_epoch,
            heartbeat_interval_ms=result.heartbeat_interval_ms,
            assignment=None if result.assigned is None else form(topic_partitions=topics),
        )
    )


def answer_descriptions(
    context: ApiCall[m.ConsumerGroupDescribeRequest | m.ShareGroupDescribeRequest],
    describe: Callable[[RequestContext, str], GroupDescription[MemberT]],
    form_of: Callable[[RequestContext, MemberT], m.DataContainer],
) -> None:
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
    context.answer(response(groups=groups))


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
