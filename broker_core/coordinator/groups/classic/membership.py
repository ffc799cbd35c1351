"""The requests of classic members: join, sync, heartbeat and leave.

Each goes through the checks of the classic protocol in order. `states` defines the result in each state, and
`rebalance` executes it. The only record written here is for a returning static member.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic import states as tables
from broker_core.coordinator.groups.classic.group import (
    ClassicGroup,
    ClassicShard,
    JoinReply,
    Member,
    SyncReply,
    elect_protocol,
)
from broker_core.coordinator.groups.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalance,
    Replies,
    member_timer,
)
from broker_core.coordinator.groups.classic.records import group_record
from broker_core.coordinator.groups.classic.requests import (
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from broker_core.coordinator.groups.classic.states import GroupState, JoinAction, SyncAction
from broker_core.coordinator.timers import Timers
from broker_core.errors import ErrorCode


class _Join(NamedTuple):
    """A JoinGroup, the group that it is for, and the way of its answer."""

    shard: ClassicShard
    group: ClassicGroup
    request: JoinGroup
    now_ms: int
    reply: JoinReply


@dataclass(slots=True)
class ClassicMembership:
    """The handling of requests of the members of a partition's classic groups."""

    _config: BrokerConfig
    _timers: Timers
    _replies: Replies
    _rebalance: Rebalance
    _new_member_id: Callable[[str], str]

    def join(self, shard: ClassicShard, request: JoinGroup, now_ms: int, reply: JoinReply) -> None:
        is_nameless = request.member_id == UNKNOWN_MEMBER
        group = shard.ensure_group(request.group_id) if is_nameless else shard.groups.get(request.group_id)
        if group is None:
            self._refuse_join(reply, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        elif not self._has_capacity(group, request.member_id):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalance.remove_member(group, member)
            self._refuse_join(reply, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)
            self._rebalance.complete_join_if_all_joined(shard, group, now_ms)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse_join(reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif is_nameless:
            self._join_nameless(_Join(shard, group, request, now_ms, reply))
        else:
            self._join_named(_Join(shard, group, request, now_ms, reply))

    def sync(self, shard: ClassicShard, request: SyncGroup, now_ms: int, reply: SyncReply) -> None:
        """Answer with the caller's assignment now, or when the leader has sent it."""
        group = shard.groups.get(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _sync_error(group, request)
        if group is None or error is not ErrorCode.NONE:
            self._replies.add(reply, SyncResult(error))
            return
        member = group.members[request.member_id]
        action = tables.SYNC[group.state]
        if isinstance(action, ErrorCode):
            self._replies.add(reply, SyncResult(action))
            return
        self._rebalance.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        self._rebalance.synced(group, member)
        if action is SyncAction.ANSWER:
            self._rebalance.hand_out(group, member, now_ms)
        elif request.member_id == group.leader:
            self._rebalance.record_assignments(shard, group, request.assignments, now_ms)

    def heartbeat(self, shard: ClassicShard, request: Heartbeat, now_ms: int) -> ErrorCode:
        group = shard.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.caller_error(request.member_id, request.group_instance_id, request.generation_id)
        if error is ErrorCode.NONE:
            self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
            return tables.HEARTBEAT[group.state]
        return error

    def leave(self, shard: ClassicShard, request: LeaveGroup, now_ms: int) -> LeaveResult:
        """Remove the named members together, so that the others rebalance once."""
        group = shard.groups.get(request.group_id)
        if group is None:
            return LeaveResult(
                ErrorCode.NONE, tuple((leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in request.members)
            )
        size = len(group.members)
        left = tuple((leaver, self._take_out(group, leaver)) for leaver in request.members)
        if len(group.members) < size:
            self._rebalance.after_departure(shard, group, now_ms)
        else:
            self._rebalance.complete_join_if_all_joined(shard, group, now_ms)
        return LeaveResult(ErrorCode.NONE, left)

    def _join_nameless(self, join: _Join) -> None:
        """Assign a member id to the caller; a known static instance takes its old place."""
        _, group, request, now_ms, reply = join
        member_id = self._new_member_id(request.group_instance_id or request.client_id)
        holder = group.static_members.get(request.group_instance_id or "")
        if request.group_instance_id is None and request.requires_known_member_id:
            group.pending_joins.add(member_id)
            self._timers.schedule(member_timer(group, member_id), now_ms + request.session_timeout_ms)
            self._refuse_join(reply, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        elif request.group_instance_id is not None and holder is not None:
            self._return_static(join, group.members[holder], member_id)
        else:
            self._add(join, member_id)

    def _join_named(self, join: _Join) -> None:
        """Handle the join of a member, or of a client that was given its member id before."""
        shard, group, request, now_ms, reply = join
        if request.member_id in group.pending_joins and request.group_instance_id is None:
            self._add(join, request.member_id)
            return
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(reply, error, request.member_id)
            return
        member = group.members[request.member_id]
        is_leader = group.leader == member.member_id
        action = tables.REJOIN[group.state, is_leader, member.protocols != request.protocols]
        if action is JoinAction.ANSWER_CURRENT:
            self._replies.add(reply, self._rebalance.current_generation(group, member))
        elif isinstance(action, ErrorCode):
            self._refuse_join(reply, action, request.member_id)
        else:
            self._await_join(member, request, reply)
            self._rebalance.prepare_or_complete(shard, group, now_ms)

    def _add(self, join: _Join, member_id: str) -> None:
        shard, group, request, now_ms, reply = join
        member = _member(request, member_id)
        member.is_new = True
        member.join_reply = reply
        group.add(member, request.protocol_type)
        group.member_added = True
        self._timers.schedule(member_timer(group, member_id), now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(shard, group, now_ms)

    def _return_static(self, join: _Join, old: Member, member_id: str) -> None:
        """Put a restarted static instance in its old place; a stable group need not rebalance (KIP-345)."""
        shard, group, request, now_ms, reply = join
        new = _member(request, member_id)
        new.assignment = old.assignment
        voters = [new if member is old else member for member in group.members.values()]
        action = tables.STATIC_RETURN[group.state, elect_protocol(voters) != group.protocol_name]
        former_leader = group.leader
        if action is JoinAction.PERSIST:
            record = group_record(group.group_id, group.record_with_replaced(old, new))
            error = shard.record([record], now_ms)
            if error is not ErrorCode.NONE:
                self._refuse_join(reply, error, UNKNOWN_MEMBER)
                return
        self._supersede(group, old, new, now_ms)
        if action is JoinAction.PERSIST:
            self._replies.add(reply, self._skipping_result(group, new, request, former_leader))
            return
        self._await_join(new, request, reply)
        self._rebalance.prepare_or_complete(shard, group, now_ms)

    def _supersede(self, group: ClassicGroup, old: Member, new: Member, now_ms: int) -> None:
        """Refuse the waiting requests of an instance's previous incarnation, and replace it by the new one."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalance.answer_join(old, JoinResult(fenced, old.member_id))
        self._rebalance.answer_sync(old, SyncResult(fenced))
        self._timers.cancel(member_timer(group, old.member_id))
        group.replace(old, new)
        self._rebalance.restart_session(group, new, now_ms)

    def _skipping_result(
        self, group: ClassicGroup, member: Member, request: JoinGroup, former_leader: str | None
    ) -> JoinResult:
        """Return an answer with which a returned instance does not assign again.

        From version 9 on, the answer tells the leader to skip the assignment (KIP-814). Older clients assign if the
        answer names them as leader, so it names their previous member id.
        """
        result = self._rebalance.current_generation(group, member)
        if request.can_skip_assignment:
            return replace(result, skip_assignment=member.member_id == group.leader)
        return replace(result, leader=former_leader or UNKNOWN_MEMBER, members=())

    def _await_join(self, member: Member, request: JoinGroup, reply: JoinReply) -> None:
        """Store the member's join until it is answered; an older join of the same member is refused."""
        self._rebalance.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_reply = reply

    def _take_out(self, group: ClassicGroup, leaver: LeavingMember) -> ErrorCode:
        member_id = leaver.member_id
        if member_id == UNKNOWN_MEMBER:
            member_id = group.static_members.get(leaver.group_instance_id or "", UNKNOWN_MEMBER)
        elif member_id in group.pending_joins and leaver.group_instance_id is None:
            self._rebalance.forget_pending(group, member_id)
            return ErrorCode.NONE
        error = group.member_error(member_id, leaver.group_instance_id)
        if error is ErrorCode.NONE:
            self._rebalance.remove_member(group, group.members[member_id])
        return error

    def _has_capacity(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether the group has space for the caller; members, and clients that already wait, have theirs."""
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return bool(member and member.join_reply) or len(group.awaiting_join) < limit
        return member is not None or len(group.members) < limit

    def _refuse_join(self, reply: JoinReply, error: ErrorCode, member_id: str) -> None:
        self._replies.add(reply, JoinResult(error, member_id))


def _member(request: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )


def _sync_error(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
    error = group.caller_error(request.member_id, request.group_instance_id, request.generation_id)
    if error is not ErrorCode.NONE:
        return error
    claims = ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name))
    if any(claimed is not None and claimed != actual for claimed, actual in claims):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE
