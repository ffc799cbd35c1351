"""The membership of consumer groups (KIP-848): members join, are reconciled, and leave.

A heartbeat, a leave and an expired deadline each result in records here; a group changes only when the
shard replays the records.
"""

from collections.abc import Callable

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.rebalance import Rebalance
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer.classic_members import ClassicMembers
from broker_core.coordinator.groups.consumer.departures import Deadlines, Departures
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
    check_capacity,
    join_static,
    known_member,
    owns_only,
    static_member,
    unknown_member,
)
from broker_core.coordinator.groups.consumer.migration import check_upgrade, upgraded
from broker_core.coordinator.groups.consumer.planning import Planning
from broker_core.coordinator.groups.consumer.records import RecordType
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    check_expression,
    check_heartbeat,
)
from broker_core.coordinator.groups.consumer.states import (
    HEARTBEAT_EPOCH,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
    epoch_fit,
)
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import ErrorCode, KafkaError


class ConsumerMembership:
    """The handling of requests of the members of a partition's consumer groups.

    `classic` handles those of members that use the classic protocol.
    """

    def __init__(
        self,
        config: BrokerConfig,
        settings_of: Callable[[str], ConsumerGroupSettings],
        timers: Timers,
        topics: Topics,
        new_member_id: Callable[[str], str],
        rebalance: Rebalance,
    ) -> None:
        self._config = config
        self._settings_of = settings_of
        self._topics = topics
        self._new_member_id = new_member_id
        self._rebalance = rebalance
        self._planning = Planning(settings_of, topics)
        self._deadlines = Deadlines(timers, settings_of)
        self._departures = Departures(config, topics, self._deadlines, rebalance)
        self.classic = ClassicMembers(config, topics, self._planning, self._deadlines, self._departures, new_member_id)

    def heartbeat(self, shard: ConsumerShard, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        """Handle a heartbeat: join, stay or leave."""
        try:
            check_heartbeat(request)
            if request.member_epoch < JOIN_EPOCH:
                return self._leave(shard, request, now_ms)
            return self._stay(shard, request, now_ms)
        except KafkaError as refusal:
            return ConsumerHeartbeatResult(refusal.code, refusal.message)

    def describe(self, group: ConsumerGroup) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(
            group.group_id,
            state=group.state.value,
            epoch=group.epoch.epoch,
            target_epoch=group.target_epoch.epoch,
            assignor=group.assignor,
            members=tuple(
                DescribedConsumer(
                    member.member_id,
                    member.current.member_epoch,
                    member.subscription,
                    frozenset({*member.current.assigned, *member.current.pending}),
                    group.target(member.member_id),
                )
                for member in group.members.values()
            ),
        )

    def resume(self, group: ConsumerGroup, now_ms: int) -> None:
        """Start a full session for each member of a group that was just loaded."""
        for member in group.members.values():
            self._deadlines.start_session(group.group_id, member.member_id, now_ms)
            if member.current.state is MemberState.UNREVOKED:
                self._deadlines.start_revocation(group.group_id, member, now_ms)

    def abandon(self, group: ConsumerGroup) -> None:
        """Cancel the group's deadlines: it is deleted or coordinated elsewhere."""
        for member_id in group.members:
            self._deadlines.end(group.group_id, member_id)

    def deadline_passed(self, shard: ConsumerShard, key: TimerKey, now_ms: int) -> None:
        """Remove a member that sent no heartbeat, or did not revoke, join or sync in time."""
        group = shard.consumer_groups[key.group_id]
        is_unrevoked = group.members[key.member_id].current.state is MemberState.UNREVOKED
        if key.kind is not TimerKind.CONSUMER_REVOCATION or is_unrevoked:
            self._departures.remove(shard, group, [key.member_id], now_ms)

    def _stay(self, shard: ConsumerShard, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        """Handle a join or a heartbeat: update the subscription, the group's target, and the member's progress."""
        found = self._find(shard, request)
        group = found.group
        member_id = request.member_id or self._new_member_id(request.client_id)
        check_capacity(group, self._config.group_consumer_max_size, member_id, request.instance_id)
        draft = ConsumerGroupDraft(group, found.records)
        before = self._member(draft, request, member_id)
        subscription = request.updated(before.subscription)
        check_expression(request, before.subscription)
        if member_id not in draft.group.members or subscription != before.subscription:
            draft.put(RecordType.MEMBER, subscription, member_id)
        self._planning.follow_topics(group, draft, request.may_see, now_ms)
        self._planning.assign(draft, now_ms)
        self._planning.reconcile(draft, member_id, request.owned, group.topics_of(member_id))
        after, former = draft.current_of(member_id), group.static_members.get(request.instance_id or "", member_id)
        self._record(shard, draft, now_ms)
        replaced = shard.groups.pop(request.group_id, None)
        if replaced is not None:
            self._rebalance.abandon(replaced, ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                self._deadlines.start_classic_session(request.group_id, member, now_ms)
        if former != member_id:
            self._deadlines.end(request.group_id, former)
        self._planning.saw_topics(shard.consumer_groups[request.group_id])
        self._deadlines.end_classic(request.group_id, member_id)
        self._deadlines.start_session(request.group_id, member_id, now_ms)
        if after != before.current:
            self._deadlines.end_revocation(request.group_id, member_id)
            if after.state is MemberState.UNREVOKED:
                self._deadlines.start_revocation(request.group_id, draft.group.members[member_id], now_ms)
        tells = request.is_full or after.assigned.keys() != before.current.assigned.keys()
        return ConsumerHeartbeatResult(
            ErrorCode.NONE,
            None,
            member_id,
            after.member_epoch,
            self._settings_of(request.group_id).heartbeat_interval_ms,
            frozenset(after.assigned) if tells else None,
        )

    def _find(self, shard: ConsumerShard, request: ConsumerHeartbeat) -> ConsumerGroupDraft:
        """Return the group: the known one, or for a member that joins a new one or a converted classic group."""
        group, classic = shard.consumer_groups.get(request.group_id), shard.groups.get(request.group_id)
        if classic is not None and request.member_epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if group is None and request.member_epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        tombstone = shard.group_tombstone(request.group_id)
        if classic is not None and classic.state is not GroupState.EMPTY:
            check_upgrade(classic, self._config)
            return upgraded(classic, tombstone, self._topics)
        return ConsumerGroupDraft(group or ConsumerGroup(request.group_id), tombstone)

    def _member(self, draft: ConsumerGroupDraft, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """Return the member as it was before this heartbeat; fence a caller with another identity."""
        group = draft.group
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None and joins:
            return join_static(draft, request.instance_id, member_id, is_classic=False)
        if request.instance_id is not None:
            member = static_member(group, request.member_id, request.instance_id)
        elif member_id in group.members:
            member = group.members[member_id]
        elif joins:
            return ConsumerMember(member_id)
        else:
            raise unknown_member(request.group_id, member_id)
        current = member.current
        fit = epoch_fit(request.member_epoch, current.member_epoch, current.previous_epoch)
        error = HEARTBEAT_EPOCH[fit, owns_only(request.owned, current.assigned)]
        if error is not ErrorCode.NONE:
            relation = "greater" if request.member_epoch > current.member_epoch else "smaller"
            raise KafkaError(
                error,
                f"The consumer group member has a {relation} member epoch ({request.member_epoch}) than the one "
                f"known by the group coordinator ({current.member_epoch}). The member must abandon all its partitions "
                "and rejoin.",
            )
        return member

    def _leave(self, shard: ConsumerShard, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        """Remove the caller, or record that the instance will be back within its session."""
        group = shard.consumer_groups.get(request.group_id)
        if group is None:
            is_classic = request.group_id in shard.groups
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {request.group_id} {'is not a consumer group' if is_classic else 'not found'}.",
            )
        known_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            error = self._departures.remove(shard, group, [request.member_id], now_ms)
            if error is not ErrorCode.NONE:
                raise KafkaError(error, "The departure could not be recorded.")
        else:
            draft = ConsumerGroupDraft(group)
            away = draft.current_of(request.member_id)._replace(member_epoch=STATIC_LEAVE_EPOCH, pending={})
            draft.put(RecordType.CURRENT, away, request.member_id)
            self._record(shard, draft, now_ms)
            self._deadlines.end_revocation(request.group_id, request.member_id)
        return ConsumerHeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch)

    def _record(self, shard: ConsumerShard, draft: ConsumerGroupDraft, now_ms: int) -> None:
        error = shard.record(draft.records, now_ms)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The heartbeat's outcome could not be recorded.")
