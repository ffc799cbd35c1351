"""The membership of consumer groups (KIP-848): members join, are reconciled, and leave.

A heartbeat, a leave and an expired deadline each result in records here; a group changes only when the
shard replays the records.
"""

from collections.abc import Callable, Collection

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import ClassicGroup
from broker_core.coordinator.groups.classic.requests import LeavingMember
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer.assignors import ASSIGNORS, Reader
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
    owns_only,
)
from broker_core.coordinator.groups.consumer.reconciliation import Goal, reconcile
from broker_core.coordinator.groups.consumer.records import GroupEpoch, RecordType, ResolvedRegex, TargetEpoch
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
from broker_core.coordinator.groups.consumer.subscriptions import Topics, matching_topics, metadata_hash
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import ErrorCode, KafkaError

_FIRST_EPOCH = 1


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline of a member's next heartbeat."""
    return TimerKey(TimerKind.CONSUMER_SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline by which a member must have revoked partitions."""
    return TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member_id)


class ConsumerMembership:
    """The handling of requests of the members of a partition's consumer groups."""

    def __init__(
        self,
        config: BrokerConfig,
        settings_of: Callable[[str], ConsumerGroupSettings],
        timers: Timers,
        topics: Topics,
        new_member_id: Callable[[str], str],
        end_classic: Callable[[ClassicGroup], None],
    ) -> None:
        self._config = config
        self._settings_of = settings_of
        self._timers = timers
        self._topics = topics
        self._new_member_id = new_member_id
        self._end_classic = end_classic

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
        """Describe one group."""
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
            self._start_session(group.group_id, member.member_id, now_ms)
            if member.current.state is MemberState.UNREVOKED:
                self._start_revocation(group.group_id, member, now_ms)

    def abandon(self, group: ConsumerGroup) -> None:
        """Cancel the group's deadlines: it is deleted or coordinated elsewhere."""
        for member_id in group.members:
            self._cancel(group.group_id, member_id)

    def session_passed(self, shard: ConsumerShard, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """Remove a member whose session has expired."""
        self._take_out(shard, group, member_id, now_ms)

    def revocation_passed(self, shard: ConsumerShard, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """Remove a member that did not revoke its partitions in time: others wait for them."""
        if group.members[member_id].current.state is MemberState.UNREVOKED:
            self._take_out(shard, group, member_id, now_ms)

    def remove_by_classic_leave(
        self,
        shard: ConsumerShard,
        group: ConsumerGroup,
        leaver: LeavingMember,
        now_ms: int,
    ) -> ErrorCode:
        """Remove the member that a LeaveGroup request names, by instance id alone if an administrator sends it."""
        member_id = leaver.member_id
        if leaver.group_instance_id is not None:
            holder = group.static_members.get(leaver.group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id not in ("", holder):
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = holder
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._take_out(shard, group, member_id, now_ms)

    def _stay(self, shard: ConsumerShard, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        """Handle a join or a heartbeat: update the subscription, the group's target, and the member's progress."""
        group = self._find(shard, request)
        member_id = request.member_id or self._new_member_id(request.client_id)
        self._check_capacity(group, request, member_id)
        draft = ConsumerGroupDraft(group, shard.group_tombstone(request.group_id))
        before = self._member(draft, request, member_id)
        subscription = request.updated(before.subscription)
        check_expression(request, before.subscription)
        if member_id not in draft.group.members or subscription != before.subscription:
            draft.put(RecordType.MEMBER, subscription, member_id)
        self._follow_topics(group, draft, request.may_see, now_ms)
        self._assign(draft, now_ms)
        self._reconcile(draft, member_id, request, group.topics_of(member_id))
        after, former = draft.current_of(member_id), group.static_members.get(request.instance_id or "", member_id)
        self._record(shard, draft, now_ms)
        if former != member_id:
            self._cancel(request.group_id, former)
        replaced = shard.forget_group(request.group_id)
        if replaced is not None:
            self._end_classic(replaced)
        shard.consumer_groups[request.group_id].seen_topics_version = self._topics.version
        self._start_session(request.group_id, member_id, now_ms)
        if after != before.current:
            self._timers.cancel(revocation_timer(request.group_id, member_id))
            if after.state is MemberState.UNREVOKED:
                self._start_revocation(request.group_id, draft.group.members[member_id], now_ms)
        tells = request.is_full or after.assigned.keys() != before.current.assigned.keys()
        return ConsumerHeartbeatResult(
            ErrorCode.NONE,
            None,
            member_id,
            after.member_epoch,
            self._settings_of(request.group_id).heartbeat_interval_ms,
            frozenset(after.assigned) if tells else None,
        )

    def _find(self, shard: ConsumerShard, request: ConsumerHeartbeat) -> ConsumerGroup:
        """Return the group, a new one for a member that joins; it replaces an empty classic group."""
        group, classic = shard.consumer_groups.get(request.group_id), shard.groups.get(request.group_id)
        if classic is not None and request.member_epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if classic is not None and classic.state is not GroupState.EMPTY:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {request.group_id} to consumer group "
                "because online upgrade is disabled.",
            )
        if group is None and request.member_epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        return group or ConsumerGroup(request.group_id)

    def _check_capacity(self, group: ConsumerGroup, request: ConsumerHeartbeat, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        is_known = member_id in group.members or request.instance_id in group.static_members
        if len(group.members) >= limit and not is_known:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member(self, draft: ConsumerGroupDraft, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """Return the member as it was before this heartbeat; fence a caller with another identity."""
        group = draft.group
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None and joins:
            return self._join_static(draft, request.instance_id, member_id)
        if request.instance_id is not None:
            member = self._static_member(group, request)
        elif member_id in group.members:
            member = group.members[member_id]
        elif joins:
            return ConsumerMember(member_id)
        else:
            raise _unknown_member(request)
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

    def _static_member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the static member of the request's instance id, if the caller is its current owner."""
        holder = group.static_members.get(request.instance_id or "")
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
        if holder != request.member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id "
                f"{request.instance_id} was fenced by member {holder}.",
            )
        return group.members[holder]

    def _join_static(self, draft: ConsumerGroupDraft, instance_id: str, member_id: str) -> ConsumerMember:
        """Add a static member, replacing its previous incarnation if that has left temporarily (epoch -2)."""
        holder = draft.group.static_members.get(instance_id)
        if holder is None:
            return draft.group.members.get(member_id, ConsumerMember(member_id))
        former, target = draft.group.members[holder], draft.group.target(holder)
        if former.current.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot "
                f"join the group because the instance id is owned by {holder} member.",
            )
        draft.remove_member(holder)
        draft.put(RecordType.MEMBER, former.subscription, member_id)
        draft.put(RecordType.TARGET, target, member_id)
        draft.put(RecordType.CURRENT, former.current._replace(member_epoch=0, previous_epoch=0), member_id)
        return draft.group.members[member_id]

    def _follow_topics(
        self, group: ConsumerGroup, draft: ConsumerGroupDraft, may_see: Callable[[str], bool] | None, now_ms: int
    ) -> None:
        """Increment the group epoch if the topics that its members read have changed, for any reason."""
        if not draft.records and group.seen_topics_version == self._topics.version:
            return
        self._resolve_regexes(draft, may_see, now_ms)
        now, before = draft.group, group.reading()
        sum_of_topics = metadata_hash(now.subscribed_topics(), self._topics)
        has_changed = (
            sum_of_topics != group.epoch.metadata_hash
            or now.assignor != group.assignor
            or any(topics != before.get(who, frozenset()) for who, topics in now.reading().items())
        )
        epoch = GroupEpoch(max(group.epoch.epoch, _FIRST_EPOCH) + has_changed, sum_of_topics)
        if epoch != group.epoch:
            draft.put(RecordType.GROUP_EPOCH, epoch)

    def _resolve_regexes(self, draft: ConsumerGroupDraft, may_see: Callable[[str], bool] | None, now_ms: int) -> None:
        """Match the expressions in use against the topics the caller may see, as Kafka does; drop the others."""
        in_use = draft.group.regexes_in_use()
        for regex in sorted(in_use):
            known = draft.group.regexes.get(regex)
            topics = matching_topics(regex, self._topics, may_see)
            if known is None or known.topics != topics:
                draft.put(RecordType.REGULAR_EXPRESSION, ResolvedRegex(topics, self._topics.version, now_ms), regex)
        for regex in sorted(draft.group.regexes.keys() - in_use):
            draft.put(RecordType.REGULAR_EXPRESSION, None, regex)

    def _assign(self, draft: ConsumerGroupDraft, now_ms: int) -> None:
        """Compute a target for the group epoch, unless the last one is too recent."""
        group = draft.group
        interval_ms = self._settings_of(group.group_id).assignment_interval_ms
        if group.epoch.epoch <= group.target_epoch.epoch or (
            group.target_epoch.epoch and now_ms < group.target_epoch.timestamp_ms + interval_ms
        ):
            return
        facts = {name: self._topics.find(name) for name in group.subscribed_topics()}
        ids = {name: found.topic_id for name, found in facts.items() if found is not None}
        counts = {found.topic_id: found.partition_count for found in facts.values() if found is not None}
        readers = {
            member_id: Reader(
                member_id,
                member.instance_id,
                frozenset(ids[name] for name in group.topics_of(member_id) & ids.keys()),
                group.target(member_id),
            )
            for member_id, member in group.members.items()
        }
        for member_id, share in ASSIGNORS[group.assignor](readers, counts).items():
            if share != group.target(member_id):
                draft.put(RecordType.TARGET, frozenset(share), member_id)
        draft.put(RecordType.TARGET_EPOCH, TargetEpoch(group.epoch.epoch, now_ms))

    def _reconcile(
        self,
        draft: ConsumerGroupDraft,
        member_id: str,
        request: ConsumerHeartbeat,
        former_topics: Collection[str],
    ) -> None:
        """Move the member one step towards its target."""
        group = draft.group
        topics = group.topics_of(member_id)
        has_changed = topics != former_topics
        current = draft.current_of(member_id)
        if group.members[member_id].is_reconciled_to(group.target_epoch.epoch) and not has_changed:
            return
        readable = frozenset(found.topic_id for name in topics if (found := self._topics.find(name)) is not None)
        reached = reconcile(
            current,
            Goal(
                member_id,
                group.target_epoch.epoch,
                group.target(member_id),
                readable,
                group.holders,
                request.owned,
                has_changed,
            ),
        )
        if reached is not current:
            draft.put(RecordType.CURRENT, reached, member_id)

    def _leave(self, shard: ConsumerShard, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        """Remove the caller, or record that the instance will be back within its session."""
        group = shard.consumer_groups.get(request.group_id)
        if group is None:
            is_classic = request.group_id in shard.groups
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {request.group_id} {'is not a consumer group' if is_classic else 'not found'}.",
            )
        if request.instance_id is not None:
            self._static_member(group, request)
        elif request.member_id not in group.members:
            raise _unknown_member(request)
        if request.member_epoch == LEAVE_EPOCH:
            error = self._take_out(shard, group, request.member_id, now_ms)
            if error is not ErrorCode.NONE:
                raise KafkaError(error, "The departure could not be recorded.")
        else:
            draft = ConsumerGroupDraft(group)
            away = draft.current_of(request.member_id)._replace(member_epoch=STATIC_LEAVE_EPOCH, pending={})
            draft.put(RecordType.CURRENT, away, request.member_id)
            self._record(shard, draft, now_ms)
            self._timers.cancel(revocation_timer(request.group_id, request.member_id))
        return ConsumerHeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch)

    def _take_out(self, shard: ConsumerShard, group: ConsumerGroup, member_id: str, now_ms: int) -> ErrorCode:
        """Remove a member and increment the group epoch, so that the others get its partitions."""
        draft = ConsumerGroupDraft(group)
        draft.remove_member(member_id)
        for regex in sorted(draft.group.regexes.keys() - draft.group.regexes_in_use()):
            draft.put(RecordType.REGULAR_EXPRESSION, None, regex)
        epoch = group.epoch.epoch + 1
        topics = metadata_hash(draft.group.subscribed_topics(), self._topics)
        draft.put(RecordType.GROUP_EPOCH, GroupEpoch(epoch, topics))
        if not draft.group.members:
            draft.put(RecordType.TARGET_EPOCH, TargetEpoch(epoch, now_ms))
        error = shard.record(draft.records, now_ms)
        if error is ErrorCode.NONE:
            self._cancel(group.group_id, member_id)
        else:
            # Try again after another session: a member that is gone must not keep its partitions.
            self._start_session(group.group_id, member_id, now_ms)
        return error

    def _record(self, shard: ConsumerShard, draft: ConsumerGroupDraft, now_ms: int) -> None:
        error = shard.record(draft.records, now_ms)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The heartbeat's outcome could not be recorded.")

    def _start_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._settings_of(group_id).session_timeout_ms
        self._timers.schedule(session_timer(group_id, member_id), now_ms + timeout_ms)

    def _start_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        self._timers.schedule(revocation_timer(group_id, member.member_id), now_ms + timeout_ms)

    def _cancel(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(session_timer(group_id, member_id))
        self._timers.cancel(revocation_timer(group_id, member_id))


def _unknown_member(request: ConsumerHeartbeat) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {request.group_id}."
    )
