"""The rebalance of a classic group from one generation to the next.

It covers the start and the completion of a rebalance, and members that do not join or sync in time. Requests
are checked in `membership` beforehand.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import ClassicGroup, Member
from broker_core.coordinator.groups.classic.records import group_record
from broker_core.coordinator.groups.classic.requests import UNKNOWN_MEMBER, JoinResult, SyncResult
from broker_core.coordinator.groups.classic.states import DEPARTURE_REBALANCES, GroupState
from broker_core.coordinator.journal import Recorder
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import ErrorCode

# A waiting join does not show whether its client is alive. A new member's join is dropped after this time, and
# the client, if it is alive, joins again.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

_Result = TypeVar("_Result")


def member_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.MEMBER, group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.SYNC, group.group_id)


class Replies:
    """A queue of answers that are delivered when the current operation is complete.

    A callback may make the next request at once; delivered during a rebalance it
    would find the group in an inconsistent state.
    """

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._delivering = False

    def add(self, reply: Callable[[_Result], None], result: _Result) -> None:
        self._queue.append(lambda: reply(result))

    def deliver(self) -> None:
        """Deliver the queued answers, in order, including those queued meanwhile."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._delivering = False


class Rebalance:
    """The steps of a rebalance; every method leaves the group in a state of the table."""

    def __init__(self, config: BrokerConfig, timers: Timers, replies: Replies) -> None:
        self._delay_ms = config.group_initial_rebalance_delay_ms
        self._timers = timers
        self._replies = replies

    def prepare(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        """Start a rebalance; members that wait for an assignment have to rejoin."""
        is_first = group.state is GroupState.EMPTY
        self.drop_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._timers.cancel(sync_timer(group))
        group.pending_syncs.clear()
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        if not is_first:
            self._timers.schedule(join_timer(group), now_ms + group.rebalance_timeout_ms)
            self.complete_join_if_all_joined(recorder, group, now_ms)
        elif self._delay_ms > 0:
            group.initial_budget_ms = max(0, group.rebalance_timeout_ms - self._delay_ms)
            group.member_added = False
            self._timers.schedule(join_timer(group), now_ms + self._delay_ms)
        else:
            self._complete_join(recorder, group, now_ms)

    def prepare_or_complete(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_join_if_all_joined(recorder, group, now_ms)
        else:
            self.prepare(recorder, group, now_ms)

    def complete_join_if_all_joined(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        """Complete the join phase if no member is missing; a group's first rebalance waits for its delay."""
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and group.initial_budget_ms is None and group.has_all_joined:
            self._complete_join(recorder, group, now_ms)

    def join_deadline_passed(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        """Continue without members that did not join; a first rebalance waits again while new members join."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.initial_budget_ms and group.member_added:
            group.member_added = False
            delay_ms = min(self._delay_ms, group.initial_budget_ms)
            group.initial_budget_ms -= delay_ms
            self._timers.schedule(join_timer(group), now_ms + delay_ms)
        else:
            self._complete_join(recorder, group, now_ms)

    def sync_deadline_passed(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        """Remove members that joined and did not sync, and start a rebalance without them."""
        lazy = [group.members[member_id] for member_id in group.pending_syncs]
        if not lazy or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        for member in lazy:
            self.remove_member(group, member)
        self.prepare(recorder, group, now_ms)

    def member_deadline_passed(self, recorder: Recorder, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """Remove a member whose session expired, or a client that was given its member id and did not rejoin."""
        if member_id in group.pending_joins:
            self.forget_pending(group, member_id)
            self.complete_join_if_all_joined(recorder, group, now_ms)
            return
        member = group.members[member_id]
        is_waiting = member.join_reply or member.sync_reply
        if is_waiting and not member.is_new:
            # It waits for our answer and cannot heartbeat meanwhile, so its session does not expire.
            self.restart_session(group, member, now_ms)
            return
        self.remove_member(group, member)
        self.after_departure(recorder, group, now_ms)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_joins.discard(member_id)
        self._timers.cancel(member_timer(group, member_id))

    def remove_member(self, group: ClassicGroup, member: Member) -> None:
        """Remove a member and answer its waiting requests; call `after_departure` when all are removed."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(member, JoinResult(unknown, UNKNOWN_MEMBER))
        self.answer_sync(member, SyncResult(unknown))
        self._timers.cancel(member_timer(group, member.member_id))
        group.remove(member)

    def after_departure(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        if DEPARTURE_REBALANCES[group.state]:
            self.prepare(recorder, group, now_ms)
        else:
            self.complete_join_if_all_joined(recorder, group, now_ms)

    def restart_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        self._timers.schedule(member_timer(group, member.member_id), now_ms + member.session_timeout_ms)

    def synced(self, group: ClassicGroup, member: Member) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(sync_timer(group))

    def record_assignments(
        self, recorder: Recorder, group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int
    ) -> None:
        """Record the leader's assignment and send it to the members, or rebalance if it cannot be recorded."""
        known = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        error = recorder.record([group_record(group.group_id, group.record(now_ms, known))], now_ms)
        if error is not ErrorCode.NONE:
            self.drop_assignments(group, error, now_ms)
            self.prepare(recorder, group, now_ms)
            return
        group.transition_to(GroupState.STABLE, now_ms)
        for member in group.members.values():
            member.assignment = known[member.member_id]
            if member.sync_reply is not None:
                self.hand_out(group, member, now_ms)

    def drop_assignments(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                self.answer_sync(member, SyncResult(error))
                self.restart_session(group, member, now_ms)

    def hand_out(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """Answer the member's waiting sync with its assignment and restart its session."""
        self.answer_sync(
            member, SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
        )
        self.restart_session(group, member, now_ms)

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync_reply is not None:
            self._replies.add(member.sync_reply, result)
            member.sync_reply = None

    def answer_join(self, member: Member, result: JoinResult) -> None:
        if member.join_reply is not None:
            self._replies.add(member.join_reply, result)
            member.join_reply = None

    def abandon(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Refuse all waiting requests: the group is coordinated elsewhere, or is a consumer group from now on."""
        for member in group.members.values():
            self.answer_join(member, JoinResult(error, member.member_id))
            self.answer_sync(member, SyncResult(error))
        self.end_group(group)

    def end_group(self, group: ClassicGroup) -> None:
        for member_id in (*group.members, *group.pending_joins):
            self._timers.cancel(member_timer(group, member_id))
        self._timers.cancel(join_timer(group))
        self._timers.cancel(sync_timer(group))

    def _complete_join(self, recorder: Recorder, group: ClassicGroup, now_ms: int) -> None:
        """Complete the join phase: remove missing members, increment the generation, answer the waiting joins.

        Missing static members stay until their session ends, so that they keep their place over a restart.
        If no member has joined, the phase is extended until those sessions end.
        """
        self._timers.cancel(join_timer(group))
        group.initial_budget_ms = None
        for member in [member for member in group.members.values() if not member.join_reply]:
            if member.group_instance_id is None:
                self.remove_member(group, member)
        if group.members and not group.elect_joined_leader():
            self._timers.schedule(join_timer(group), now_ms + group.rebalance_timeout_ms)
            return
        group.start_generation(now_ms)
        if group.state is GroupState.EMPTY:
            # If the record is refused, nothing is lost: after the next load the old members expire again.
            recorder.record([group_record(group.group_id, group.record(now_ms, {}))], now_ms)
            return
        for member in group.members.values():
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.restart_session(group, member, now_ms)
            self.answer_join(member, self.current_generation(group, member))
        self._timers.schedule(sync_timer(group), now_ms + group.rebalance_timeout_ms)

    def current_generation(self, group: ClassicGroup, member: Member) -> JoinResult:
        """Return the answer to a member's join; the leader also gets all members' metadata."""
        is_leader = member.member_id == group.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader or UNKNOWN_MEMBER,
            members=group.joined_members() if is_leader else (),
        )
