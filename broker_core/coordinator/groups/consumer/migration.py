"""Members that leave consumer groups, and the change of a group with members from one protocol to the other.

When a group changes its protocol (KIP-848, "Migrating to the New Protocol"), members keep their ids, instance ids and
assignments; the generation becomes the group epoch and the other way round. A departure may leave a group to the
classic protocol.

A member of either protocol has a session. A member of the consumer protocol must revoke partitions in time, a member of
the classic protocol must rejoin, and request its assignment after it joined.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Member,
    common_protocols,
    elect_protocol,
)
from broker_core.coordinator.groups.classic.rebalance import Rebalance
from broker_core.coordinator.groups.classic.records import (
    EmbeddedSubscription,
    group_record,
    read_assignment,
    read_subscription,
    write_assignment,
)
from broker_core.coordinator.groups.classic.requests import JoinGroup
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
)
from broker_core.coordinator.groups.consumer.records import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Partitions,
    RecordType,
    Subscription,
    TopicIdPartition,
)
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.consumer.states import DOWNGRADE, POLICY, UPGRADE
from broker_core.coordinator.groups.consumer.subscriptions import Topics, metadata_hash
from broker_core.coordinator.groups.modern_records import TargetEpoch
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.types import TopicPartition

_CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


def check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    """Raise GROUP_ID_NOT_FOUND if the classic group does not become a consumer group."""
    upgrades, _ = POLICY[config.group_consumer_migration_policy]
    reason = UPGRADE.resolve(
        policy_allows=upgrades,
        members_are_consumers=group.is_consumer_group,
        has_space=len(group.members) <= config.group_consumer_max_size,
    )
    if reason:
        raise _not_upgraded(group, reason)


def may_downgrade(staying: Collection[ConsumerMember], config: BrokerConfig) -> bool:
    """Return whether a consumer group with only these members left becomes a classic group."""
    _, downgrades = POLICY[config.group_consumer_migration_policy]
    return DOWNGRADE.resolve(
        members_remain=bool(staying),
        remaining_are_classic=all(member.is_classic for member in staying),
        policy_allows=downgrades,
        has_space=len(staying) <= config.group_max_size,
    ) and bool(common_protocols(map(_classic_member, staying)))


def upgraded(group: ClassicGroup, tombstone: list[JournalRecord], topics: Topics) -> ConsumerGroupDraft:
    """Return the consumer group that a classic group becomes, with its records; no member has to move yet.

    Raises GROUP_ID_NOT_FOUND if a subscription or assignment cannot be read, or an assignor's own data would be lost.
    """
    draft = ConsumerGroupDraft(ConsumerGroup(group.group_id), tombstone)
    protocol_name = group.protocol_name or elect_protocol(group.members.values())
    try:
        subscriptions = {member.member_id: _subscription(member, protocol_name) for member in group.members.values()}
        assigned = {member.member_id: _assigned(group, member, topics) for member in group.members.values()}
    except DamageError:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
    generation = group.generation_id
    for member_id, subscription in subscriptions.items():
        draft.put(RecordType.MEMBER, subscription, member_id)
    read = frozenset[str]().union(*(subscription.topics for subscription in subscriptions.values()))
    draft.put(RecordType.GROUP_EPOCH, GroupEpoch(generation, metadata_hash(read, topics)))
    for member_id, partitions in assigned.items():
        draft.put(RecordType.TARGET, partitions, member_id)
    draft.put(RecordType.TARGET_EPOCH, TargetEpoch(generation))
    for member_id, partitions in assigned.items():
        held = dict.fromkeys(partitions, generation)
        draft.put(RecordType.CURRENT, Current(generation, generation, assigned=held), member_id)
    return draft


def downgraded(
    group: ConsumerGroup, staying: Collection[ConsumerMember], generation_id: int, topics: Topics, now_ms: int
) -> ClassicGroup:
    """Return the stable classic group that a consumer group becomes, in which each member has its target."""
    classic = ClassicGroup(group.group_id)
    for member in staying:
        classic.add(_classic_member(member), CONSUMER_PROTOCOL_TYPE)
    classic.state, classic.state_since_ms, classic.generation_id = GroupState.STABLE, now_ms, generation_id
    classic.protocol_name = elect_protocol(classic.members.values())
    classic.learn_topics()
    for each in classic.members.values():
        version = read_subscription(each.metadata(classic.protocol_name)).version
        each.assignment = write_assignment(named(group.target(each.member_id), topics), version)
    return classic


def named(partitions: Collection[TopicIdPartition], topics: Topics) -> list[TopicPartition]:
    """Return partitions with the names of their topics; partitions of deleted topics are left out."""
    return [
        TopicPartition(name, partition)
        for topic_id, partition in partitions
        if (name := topics.names.get(topic_id)) is not None
    ]


def identified(partitions: Collection[TopicPartition], topics: Topics) -> Partitions:
    """Return partitions with the ids of their topics; partitions of unknown topics are left out."""
    return frozenset(
        TopicIdPartition(found.topic_id, partition)
        for topic, partition in partitions
        if (found := topics.topics.get(topic)) is not None
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _subscription(member: Member, protocol_name: str) -> Subscription:
    embedded = read_subscription(member.metadata(protocol_name))
    return classic_subscription(member, embedded, Subscription(member.group_instance_id, embedded.rack_id))


def classic_subscription(
    member: Member | JoinGroup, embedded: EmbeddedSubscription, before: Subscription
) -> Subscription:
    """Return the subscription of a member of the classic protocol, with what only its former one says."""
    return Subscription(
        member.group_instance_id or before.instance_id,
        embedded.rack_id or before.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(embedded.topics))),
        "",
        member.rebalance_timeout_ms,
        before.server_assignor,
        ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _assigned(group: ClassicGroup, member: Member, topics: Topics) -> Partitions:
    assignment = read_assignment(member.assignment)
    if assignment.has_user_data:
        raise _not_upgraded(group, _CUSTOM_ASSIGNOR)
    return identified(assignment.partitions, topics)


def _classic_member(member: ConsumerMember) -> Member:
    subscription = member.subscription
    classic = subscription.classic or ClassicMetadata(0, ())
    return Member(
        member.member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        subscription.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )


# Only members of the classic protocol have these.
CLASSIC_DEADLINES: Final = frozenset({TimerKind.CONSUMER_JOIN, TimerKind.CONSUMER_SYNC})
MEMBER_DEADLINES: Final = CLASSIC_DEADLINES | {TimerKind.CONSUMER_SESSION, TimerKind.CONSUMER_REVOCATION}


@dataclass(slots=True)
class Deadlines:
    """The start and the end of the deadlines of members."""

    _timers: Timers
    _settings_of: Callable[[str], ConsumerGroupSettings]

    def start_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Restart the session of a member of the consumer protocol, or of any member after a load, as Kafka does."""
        timeout_ms = self._settings_of(group_id).session_timeout_ms
        self._timers.schedule(TimerKey(TimerKind.CONSUMER_SESSION, group_id, member_id), now_ms + timeout_ms)

    def start_classic_session(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member of the classic protocol, which chose its timeout itself."""
        classic = member.subscription.classic
        if classic is not None:
            self._timers.schedule(
                TimerKey(TimerKind.CONSUMER_SESSION, group_id, member.member_id), now_ms + classic.session_timeout_ms
            )

    def start(self, kind: TimerKind, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart a deadline that the member chose with its rebalance timeout."""
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        self._timers.schedule(TimerKey(kind, group_id, member.member_id), now_ms + timeout_ms)

    def expect_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Start the time in which a member must join again, unless it has started."""
        if self._timers.deadline_ms(TimerKey(TimerKind.CONSUMER_JOIN, group_id, member.member_id)) is None:
            self.start(TimerKind.CONSUMER_JOIN, group_id, member, now_ms)

    def joined(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has joined, and start the time for its SyncGroup."""
        self.end(group_id, member.member_id, (TimerKind.CONSUMER_JOIN, TimerKind.CONSUMER_REVOCATION))
        self.start_classic_session(group_id, member, now_ms)
        self.start(TimerKind.CONSUMER_SYNC, group_id, member, now_ms)

    def synced(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has requested its assignment."""
        self.end(group_id, member.member_id, (TimerKind.CONSUMER_SYNC,))
        self.start_classic_session(group_id, member, now_ms)

    def end(self, group_id: str, member_id: str, kinds: Collection[TimerKind] = MEMBER_DEADLINES) -> None:
        for kind in kinds:
            self._timers.cancel(TimerKey(kind, group_id, member_id))


@dataclass(slots=True)
class Departures:
    """The removal of members, and the downgrade of a group when its last member of the consumer protocol is gone."""

    _config: BrokerConfig
    _topics: Topics
    _deadlines: Deadlines
    _rebalance: Rebalance

    def remove(self, shard: ConsumerShard, group: ConsumerGroup, member_ids: Collection[str], now_ms: int) -> ErrorCode:
        """Remove members and increment the group epoch, so that the others get their partitions."""
        if not member_ids:
            return ErrorCode.NONE
        staying = [member for member_id, member in group.members.items() if member_id not in member_ids]
        if may_downgrade(staying, self._config):
            error = self.downgrade(shard, group, ConsumerGroupDraft(group), staying, now_ms, rebalances=True)
        else:
            error = shard.record(self._removal(group, member_ids, now_ms).records, now_ms)
            for member_id in member_ids if error is ErrorCode.NONE else ():
                self._deadlines.end(group.group_id, member_id)
        for member_id in () if error is ErrorCode.NONE else member_ids:
            # Try again after another session: a member that is gone must not keep its partitions.
            self._deadlines.start_session(group.group_id, member_id, now_ms)
        return error

    def _removal(self, group: ConsumerGroup, member_ids: Collection[str], now_ms: int) -> ConsumerGroupDraft:
        draft = ConsumerGroupDraft(group)
        for member_id in member_ids:
            draft.remove_member(member_id)
        for regex in sorted(draft.group.regexes.keys() - set(draft.group.expressions.made)):
            draft.put(RecordType.REGULAR_EXPRESSION, None, regex)
        epoch = group.epoch.epoch + 1
        topics = metadata_hash(draft.group.subscribed_topics(), self._topics)
        draft.put(RecordType.GROUP_EPOCH, GroupEpoch(epoch, topics))
        if not draft.group.members:
            draft.put(RecordType.TARGET_EPOCH, TargetEpoch(epoch, now_ms))
        return draft

    def downgrade(
        self,
        shard: ConsumerShard,
        group: ConsumerGroup,
        draft: ConsumerGroupDraft,
        staying: Collection[ConsumerMember],
        now_ms: int,
        *,
        rebalances: bool,
    ) -> ErrorCode:
        """Replace a consumer group, with the changes of a draft, by a classic group of the members that stay."""
        classic = downgraded(draft.group, staying, group.epoch.epoch, self._topics, now_ms)
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        record = group_record(group.group_id, classic.record(now_ms, assignments))
        member_ids = {*group.members, *draft.group.members}
        error = shard.record([*draft.records, *draft.group.tombstones(), record], now_ms)
        if error is not ErrorCode.NONE:
            return error
        for member_id in member_ids:
            self._deadlines.end(group.group_id, member_id)
        shard.groups[group.group_id] = classic
        for member in classic.members.values():
            self._rebalance.restart_session(classic, member, now_ms)
        if rebalances:
            self._rebalance.prepare(shard, classic, now_ms)
        return error
