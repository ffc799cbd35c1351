"""The APIs of the classic group protocol: join, sync, heartbeat, leave, and the APIs for administrators."""

from broker_core.broker.api import api
from broker_core.broker.authorization import allowed_operations, is_allowed, may_see_topics, refusal, require
from broker_core.broker.request_context import ApiCall, RequestContext
from broker_core.coordinator.groups.classic.requests import (
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from broker_core.wire.served import echo


def join(context: ApiCall[m.JoinGroupRequest]) -> m.JoinGroupResponse | None:
    """Join a group; the response is sent when the generation is complete."""
    body = context.body
    # An error of the whole request has no protocol name, and this one an empty name.
    refused = refusal(context, Operation.READ, ResourceType.GROUP, body.group_id)
    if refused:
        return _joined(context, JoinResult(refused, ""))
    context.broker.groups.join_group(
        JoinGroup(
            group_id=body.group_id,
            member_id=body.member_id,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            protocol_type=body.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
            session_timeout_ms=body.session_timeout_ms,
            rebalance_timeout_ms=body.rebalance_timeout_ms if context.version >= 1 else body.session_timeout_ms,
            group_instance_id=body.group_instance_id,
            requires_known_member_id=context.version >= 4,
            can_skip_assignment=context.version >= 9,
            may_see=may_see_topics(context),
        ),
        context.now_ms,
        context.guarded(lambda result: context.answer(_joined(context, result)), None),
    )
    return None


def _joined(context: RequestContext, result: JoinResult) -> m.JoinGroupResponse:
    protocol = result.protocol_name
    return m.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol if protocol is not None or context.version >= 7 else "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            m.JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def sync(context: ApiCall[m.SyncGroupRequest]) -> m.SyncGroupResponse | None:
    """Return the member's assignment; the leader's request contains the assignments of all."""
    body = context.body
    # A request that lacks the protocol is refused for that first, whatever the client's rights.
    if context.version >= 5 and None in (body.protocol_type, body.protocol_name):
        return m.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    require(context, Operation.READ, ResourceType.GROUP, body.group_id)

    def answer(result: SyncResult) -> None:
        context.answer(
            m.SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    context.broker.groups.sync_group(
        SyncGroup(
            group_id=body.group_id,
            member_id=body.member_id,
            generation_id=body.generation_id,
            group_instance_id=body.group_instance_id,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments={entry.member_id: bytes(entry.assignment) for entry in body.assignments},
        ),
        context.now_ms,
        context.guarded(answer, None),
    )
    return None


def heartbeat(context: ApiCall[m.HeartbeatRequest]) -> m.HeartbeatResponse:
    body = context.body
    require(context, Operation.READ, ResourceType.GROUP, body.group_id)
    code = context.broker.groups.heartbeat(
        Heartbeat(body.group_id, body.member_id, body.generation_id, body.group_instance_id), context.now_ms
    )
    return m.HeartbeatResponse(error_code=code)


def leave(context: ApiCall[m.LeaveGroupRequest]) -> m.LeaveGroupResponse:
    body, response = context.body, m.LeaveGroupResponse
    require(context, Operation.READ, ResourceType.GROUP, body.group_id)
    members = tuple(LeavingMember(member.member_id, member.group_instance_id) for member in body.members)
    if context.version < 3:
        members = (LeavingMember(body.member_id),)
    result = context.broker.groups.leave_group(LeaveGroup(body.group_id, members), context.now_ms)
    if context.version < 3:
        code = result.error or (result.members[0][1] if result.members else ErrorCode.NONE)
        return response(error_code=code)
    return response(
        error_code=result.error,
        members=[
            response.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
            )
            for member, error in result.members
        ],
    )


def list_groups(context: ApiCall[m.ListGroupsRequest]) -> m.ListGroupsResponse:
    body = context.body
    may_see_all = is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    return m.ListGroupsResponse(
        groups=[
            m.ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in context.broker.groups.list_groups(body.states_filter or (), body.types_filter or ())
            if may_see_all or is_allowed(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )


def describe_groups(context: ApiCall[m.DescribeGroupsRequest]) -> m.DescribeGroupsResponse:
    form = m.DescribeGroupsResponse.DescribedGroup
    groups = []
    for group_id in context.body.groups:
        refused = refusal(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if refused:
            groups.append(form(error_code=refused, group_id=group_id))
            continue
        found = context.broker.groups.describe(group_id)
        unknown = found.error == ErrorCode.GROUP_ID_NOT_FOUND
        # Before version 6 a group that does not exist is Dead, without an error (KIP-1043).
        code = ErrorCode.NONE if unknown and context.version < 6 else found.error
        is_asked = context.body.include_authorized_operations and code == ErrorCode.NONE
        groups.append(
            form(
                error_code=code,
                error_message=found.message,
                group_id=group_id,
                group_state=found.state.value,
                protocol_type=found.protocol_type,
                protocol_data=found.protocol,
                members=[
                    form.DescribedGroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        member_metadata=member.subscription,
                        member_assignment=member.assignment,
                    )
                    for member in found.members
                ],
                authorized_operations=allowed_operations(context, ResourceType.GROUP, group_id) if is_asked else None,
            )
        )
    return m.DescribeGroupsResponse(groups=groups)


def delete_groups(context: ApiCall[m.DeleteGroupsRequest]) -> m.DeleteGroupsResponse:
    form = m.DeleteGroupsResponse.DeletableGroupResult
    named = context.body.groups_names
    answers = {each: refusal(context, Operation.DELETE, ResourceType.GROUP, each) for each in named}
    for group_id, refused in answers.items():
        if not refused:
            # What features keep is deleted first.
            deleted = (part.delete_kept_for(group_id, context.now_ms) for part in context.broker.parts)
            answers[group_id] = next((error for error in deleted if error), ErrorCode.NONE)
    wanted = [group_id for group_id, error in answers.items() if not error]
    answers.update(context.broker.groups.delete_groups(wanted, context.now_ms))
    return m.DeleteGroupsResponse(results=[form(group_id=each, error_code=code) for each, code in answers.items()])


APIS = (
    api(m.JoinGroupRequest, (0, 9), join, "READ GROUP"),
    api(m.HeartbeatRequest, (0, 4), heartbeat, "READ GROUP"),
    api(m.LeaveGroupRequest, (0, 5), leave, "READ GROUP"),
    api(m.SyncGroupRequest, (0, 5), sync, "READ GROUP"),
    api(m.DescribeGroupsRequest, (0, 6), describe_groups, "DESCRIBE GROUP", echoes=echo("groups", group_id="")),
    api(m.ListGroupsRequest, (0, 5), list_groups, "DESCRIBE CLUSTER or DESCRIBE GROUP or nothing"),
    api(
        m.DeleteGroupsRequest,
        (0, 3),
        delete_groups,
        "DELETE GROUP",
        echoes=echo("groups_names", "results", group_id=""),
    ),
)
