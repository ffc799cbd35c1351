"""The membership of consumer groups (KIP-848): members join, are reconciled, and leave.

A heartbeat, a leave and an expired deadline each result in records here; a group changes only when the
shard replays the records.

To a member of the classic protocol the group looks like a classic group in which it never leads: a join is answered at
once, a sync has the partitions that the coordinator has assigned, and a heartbeat says when to join again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from broker_core.coordinator.groups.classic.rebalance import Rebalance
from broker_core.coordinator.groups.classic.records import EmbeddedSubscription, read_subscription, write_assignment
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
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer import states as tables
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
    check_capacity,
    check_recorded,
    join_static,
    known_member,
    owns_only,
    static_member,
    unknown_member,
)
from broker_core.coordinator.groups.consumer.migration import (
    CLASSIC_DEADLINES,
    Deadlines,
    Departures,
    check_upgrade,
    classic_subscription,
    identified,
    may_downgrade,
    named,
    upgraded,
)
from broker_core.coordinator.groups.consumer.planning import Planning
from broker_core.coordinator.groups.consumer.records import ClassicMetadata, RecordType
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    check_expression,
    check_heartbeat,
)
from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import DamageError, ErrorCode, KafkaError


@dataclass(slots=True)
class ClassicMembers:
    """The handling of requests of the classic protocol to a partition's consumer groups."""

    _config: BrokerConfig
    _topics: Topics
    _planning: Planning
    _deadlines: Deadlines
    _departures: Departures
    _new_member_id: Callable[[str], str]

    def join(self, shard: ConsumerShard, request: JoinGroup, now_ms: int) -> JoinResult | None:
        """Add the caller to a consumer group; None if the group is a classic one, now or before."""
        group = shard.consumer_groups.get(request.group_id)
        if group is None:
            return None
        try:
            # Rules E.7 protocol/1, E.7 protocol/2 and E.8/2.
            if group.members:
                if not any(tables.POLICY[self._config.group_consumer_migration_policy]):
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group migration is disabled")
                return self._join(shard, group, request, now_ms)
            check_recorded(shard.record(group.tombstones(), now_ms), "The outcome")
        except KafkaError as refusal:
            return JoinResult(refusal.code, UNKNOWN_MEMBER)
        shard.ensure_group(request.group_id)
        return None

    def sync(self, shard: ConsumerShard, request: SyncGroup, now_ms: int) -> SyncResult:
        group = shard.consumer_groups[request.group_id]
        try:
            member, classic = self._caller(group, request)
            protocol_name, metadata = classic.protocols[0]
            claims = ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, protocol_name))
            if any(claimed is not None and claimed != actual for claimed, actual in claims):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not that of the JoinGroup")
            is_behind = group.target_epoch.epoch > member.current.member_epoch
            # A member with partitions to revoke has joined for the new target. The answer has what it keeps.
            if is_behind and member.current.state is not MemberState.UNREVOKED:
                self._deadlines.expect_join(group.group_id, member, now_ms)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a newer assignment is to be joined for")
        except KafkaError as refusal:
            return SyncResult(refusal.code)
        self._deadlines.synced(group.group_id, member, now_ms)
        assignment = write_assignment(named(member.current.assigned, self._topics), _embedded(metadata).version)
        return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)

    def heartbeat(self, shard: ConsumerShard, request: Heartbeat, now_ms: int) -> ErrorCode:
        group = shard.consumer_groups[request.group_id]
        try:
            member, _ = self._caller(group, request)
        except KafkaError as refusal:
            return refusal.code
        self._deadlines.start_classic_session(group.group_id, member, now_ms)
        error = tables.CLASSIC_HEARTBEAT.resolve(
            is_behind_target=member.current.member_epoch < group.target_epoch.epoch,
            state=member.current.state,
            others_keep_its_partitions=group.others_keep(member),
        )
        if error is not ErrorCode.NONE:
            self._deadlines.expect_join(group.group_id, member, now_ms)
        return error

    def leave(self, shard: ConsumerShard, request: LeaveGroup, now_ms: int) -> LeaveResult:
        """Remove the named members together, whatever protocol they use."""
        group = shard.consumer_groups[request.group_id]
        leaving: dict[str, None] = {}
        left = []
        for leaver in request.members:
            try:
                leaving[_leaving_member(group, leaver).member_id] = None
                error = ErrorCode.NONE
            except KafkaError as refusal:
                error = refusal.code
            left.append((leaver, error))
        error = self._departures.remove(shard, group, leaving, now_ms)
        return LeaveResult(error, tuple(left) if error is ErrorCode.NONE else ())

    def _join(self, shard: ConsumerShard, group: ConsumerGroup, request: JoinGroup, now_ms: int) -> JoinResult:
        instance_id, is_nameless = request.group_instance_id, request.member_id == UNKNOWN_MEMBER
        member_id = request.member_id or self._new_member_id(instance_id or request.client_id)
        check_capacity(group, self._config.group_consumer_max_size, member_id, instance_id)
        if not group.supports_classic(request.protocol_type, [name for name, _ in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the caller's protocols are not supported")
        if is_nameless and instance_id is None and request.requires_known_member_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        draft = ConsumerGroupDraft(group)
        if instance_id is None:
            before = group.members.get(member_id, ConsumerMember(member_id))
        elif is_nameless:
            before = join_static(draft, instance_id, member_id, is_classic=True)
        else:
            before = known_member(group, member_id, instance_id)
        former_id = group.static_members.get(instance_id or "", member_id)
        protocol_name, metadata = request.protocols[0]
        embedded = _embedded(metadata)
        subscription = classic_subscription(request, embedded, before.subscription)
        if member_id not in draft.group.members or subscription != before.subscription:
            draft.put(RecordType.MEMBER, subscription, member_id)
        self._planning.follow_topics(group, draft, request.may_see, now_ms)
        replaces_consumer = former_id in group.members and not group.members[former_id].is_classic
        is_downgraded = (
            instance_id is not None and replaces_consumer and may_downgrade(draft.group.members.values(), self._config)
        )
        rebalances = is_downgraded and group.target_epoch.epoch < draft.group.epoch.epoch
        if not is_downgraded:
            self._planning.assign(draft, now_ms)
        if not rebalances:
            owned = identified(embedded.owned, self._topics)
            self._planning.reconcile(draft, member_id, owned, group.topics_of(former_id))
        generation_id = draft.current_of(member_id).member_epoch
        if is_downgraded:
            staying = list(draft.group.members.values())
            error = self._departures.downgrade(shard, group, draft, staying, now_ms, rebalances=rebalances)
            check_recorded(error, "The outcome")
        else:
            check_recorded(shard.record(draft.records, now_ms), "The outcome")
            if former_id != member_id:
                self._deadlines.end(request.group_id, former_id)
            group.seen_topics_version = self._topics.topics_version
            self._deadlines.joined(request.group_id, group.members[member_id], now_ms)
        return JoinResult(ErrorCode.NONE, member_id, generation_id, CONSUMER_PROTOCOL_TYPE, protocol_name)

    def _caller(self, group: ConsumerGroup, request: SyncGroup | Heartbeat) -> tuple[ConsumerMember, ClassicMetadata]:
        """Return the caller's member; it must use the classic protocol, and its generation must be the member epoch."""
        member = known_member(group, request.member_id, request.group_instance_id)
        classic = member.subscription.classic
        if classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the member does not use the classic protocol")
        if request.generation_id != member.current.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the generation is not the member epoch")
        return member, classic


def _leaving_member(group: ConsumerGroup, leaver: LeavingMember) -> ConsumerMember:
    """Return the member that a LeaveGroup names, by instance id alone if an administrator sends it."""
    member_id, instance_id = leaver.member_id, leaver.group_instance_id
    if instance_id is not None and member_id == UNKNOWN_MEMBER:
        member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER)
    return known_member(group, member_id, instance_id)


def _embedded(metadata: bytes) -> EmbeddedSubscription:
    try:
        return read_subscription(metadata)
    except DamageError as damage:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(damage)) from damage


class ConsumerMembership:
    """The handling of requests of the members of a partition's consumer groups.

    `classic` handles the requests of members that use the classic protocol.
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
        try:
            check_heartbeat(request)
            if request.member_epoch < tables.JOIN_EPOCH:
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
                self._deadlines.start(TimerKind.CONSUMER_REVOCATION, group.group_id, member, now_ms)

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
        check_recorded(shard.record(draft.records, now_ms), "The heartbeat's outcome")
        replaced = shard.groups.pop(request.group_id, None)
        if replaced is not None:
            self._rebalance.abandon(replaced, ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                self._deadlines.start_classic_session(request.group_id, member, now_ms)
        if former != member_id:
            self._deadlines.end(request.group_id, former)
        shard.consumer_groups[request.group_id].seen_topics_version = self._topics.topics_version
        self._deadlines.end(request.group_id, member_id, CLASSIC_DEADLINES)
        self._deadlines.start_session(request.group_id, member_id, now_ms)
        if after != before.current:
            self._deadlines.end(request.group_id, member_id, (TimerKind.CONSUMER_REVOCATION,))
            if after.state is MemberState.UNREVOKED:
                self._deadlines.start(
                    TimerKind.CONSUMER_REVOCATION, request.group_id, draft.group.members[member_id], now_ms
                )
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
        if classic is not None and request.member_epoch != tables.JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if group is None and request.member_epoch != tables.JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        tombstone = shard.group_tombstone(request.group_id)
        if classic is not None and classic.state is not GroupState.EMPTY:
            check_upgrade(classic, self._config)
            return upgraded(classic, tombstone, self._topics)
        return ConsumerGroupDraft(group or ConsumerGroup(request.group_id), tombstone)

    def _member(self, draft: ConsumerGroupDraft, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """Return the member as it was before this heartbeat; fence a caller with another identity."""
        group = draft.group
        joins = request.member_epoch == tables.JOIN_EPOCH
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
        fit = tables.epoch_fit(request.member_epoch, current.member_epoch, current.previous_epoch)
        error = tables.HEARTBEAT_EPOCH[fit, owns_only(request.owned, current.assigned)]
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
        if request.member_epoch == tables.LEAVE_EPOCH:
            check_recorded(self._departures.remove(shard, group, [request.member_id], now_ms), "The departure")
        else:
            draft = ConsumerGroupDraft(group)
            away = draft.current_of(request.member_id)._replace(member_epoch=tables.STATIC_LEAVE_EPOCH, pending={})
            draft.put(RecordType.CURRENT, away, request.member_id)
            check_recorded(shard.record(draft.records, now_ms), "The heartbeat's outcome")
            self._deadlines.end(request.group_id, request.member_id, (TimerKind.CONSUMER_REVOCATION,))
        return ConsumerHeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch)
