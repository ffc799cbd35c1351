"""The members of consumer groups that use the classic protocol: join, sync, heartbeat and leave (KIP-848).

To such a member the group looks like a classic group in which it never leads: a join is answered at once, a sync has
the partitions that the coordinator has assigned, and a heartbeat says when to join again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from broker_core.coordinator.groups.classic.records import EmbeddedSubscription, read_subscription, write_assignment
from broker_core.coordinator.groups.classic.requests import (
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncResult,
)
from broker_core.coordinator.groups.consumer.departures import Deadlines, Departures
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
    check_capacity,
    join_static,
    known_member,
)
from broker_core.coordinator.groups.consumer.migration import identified, may_downgrade, named, policy_of
from broker_core.coordinator.groups.consumer.planning import Planning
from broker_core.coordinator.groups.consumer.records import ClassicMetadata, RecordType, Subscription
from broker_core.coordinator.groups.consumer.states import (
    CLASSIC_HEARTBEAT,
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    ClassicJoin,
    MemberState,
    MigrationPolicy,
)
from broker_core.coordinator.groups.consumer.subscriptions import Topics
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
        is_disabled = policy_of(self._config) is MigrationPolicy.DISABLED
        action = CLASSIC_JOIN[bool(group.members), is_disabled]
        try:
            if action is ClassicJoin.REFUSE:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group migration is disabled")
            if action is ClassicJoin.MEMBER:
                return self._join(shard, group, request, now_ms)
            _check(shard.record(group.tombstones(), now_ms))
        except KafkaError as refusal:
            return JoinResult(refusal.code, UNKNOWN_MEMBER)
        shard.ensure_group(request.group_id)
        return None

    def sync(self, group: ConsumerGroup, request: SyncGroup, now_ms: int) -> SyncResult:
        """Answer with the partitions that the caller has."""
        try:
            member, classic = self._caller(group, request)
            protocol_name, metadata = classic.protocols[0]
            claims = ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, protocol_name))
            if any(claimed is not None and claimed != actual for claimed, actual in claims):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is not that of the JoinGroup")
            is_behind = group.target_epoch.epoch > member.current.member_epoch
            error = CLASSIC_SYNC[is_behind, member.current.state is MemberState.UNREVOKED]
            if error is not ErrorCode.NONE:
                self._deadlines.expect_join(group.group_id, member, now_ms)
                raise KafkaError(error, "a newer assignment is to be joined for")
        except KafkaError as refusal:
            return SyncResult(refusal.code)
        self._deadlines.synced(group.group_id, member, now_ms)
        assignment = write_assignment(named(member.current.assigned, self._topics), _embedded(metadata).version)
        return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)

    def heartbeat(self, group: ConsumerGroup, request: Heartbeat, now_ms: int) -> ErrorCode:
        try:
            member, _ = self._caller(group, request)
        except KafkaError as refusal:
            return refusal.code
        self._deadlines.start_classic_session(group.group_id, member, now_ms)
        error = CLASSIC_HEARTBEAT.resolve(
            is_behind_target=member.current.member_epoch < group.target_epoch.epoch,
            state=member.current.state,
            others_keep_its_partitions=group.others_keep(member),
        )
        if error is not ErrorCode.NONE:
            self._deadlines.expect_join(group.group_id, member, now_ms)
        return error

    def leave(self, shard: ConsumerShard, group: ConsumerGroup, request: LeaveGroup, now_ms: int) -> LeaveResult:
        """Remove the named members together, whatever protocol they use."""
        leaving: dict[str, None] = {}
        left = []
        for leaver in request.members:
            try:
                leaving[_leaving_member(group, leaver).member_id] = None
                error = ErrorCode.NONE
            except KafkaError as refusal:
                error = refusal.code
            left.append(LeftMember(leaver.member_id, leaver.group_instance_id, error))
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
        subscription = _subscription(request, embedded, before.subscription)
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
            _check(self._departures.downgrade(shard, group, draft, staying, now_ms, rebalances=rebalances))
        else:
            _check(shard.record(draft.records, now_ms))
            if former_id != member_id:
                self._deadlines.end(request.group_id, former_id)
            self._planning.saw_topics(group)
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


def _subscription(request: JoinGroup, embedded: EmbeddedSubscription, before: Subscription) -> Subscription:
    """Return the member's subscription after its JoinGroup; the classic protocol has no expressions."""
    return Subscription(
        request.group_instance_id or before.instance_id,
        embedded.rack_id or before.rack_id,
        request.client_id,
        request.client_host,
        tuple(sorted(set(embedded.topics))),
        "",
        request.rebalance_timeout_ms,
        before.server_assignor,
        ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _check(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "The outcome could not be recorded.")
