"""The deadlines of the members of consumer groups, and their departure.

A member of either protocol has a session. A member of the consumer protocol must revoke partitions in time, a member of
the classic protocol must rejoin, and request its assignment after it joined. A departure may leave a group to the
classic protocol.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.rebalance import Rebalance
from broker_core.coordinator.groups.classic.records import group_record
from broker_core.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerGroupDraft,
    ConsumerMember,
    ConsumerShard,
)
from broker_core.coordinator.groups.consumer.migration import downgraded, may_downgrade
from broker_core.coordinator.groups.consumer.records import GroupEpoch, RecordType
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.groups.consumer.subscriptions import Topics, metadata_hash
from broker_core.coordinator.groups.modern_records import TargetEpoch
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import ErrorCode

MEMBER_DEADLINES: Final = frozenset(
    {
        TimerKind.CONSUMER_SESSION,
        TimerKind.CONSUMER_REVOCATION,
        TimerKind.CONSUMER_JOIN,
        TimerKind.CONSUMER_SYNC,
    }
)


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

    def start_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        self._timers.schedule(
            TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member.member_id), now_ms + _rebalance_ms(member)
        )

    def end_revocation(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member_id))

    def expect_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Start the time in which a member must join again, unless it has started."""
        key = TimerKey(TimerKind.CONSUMER_JOIN, group_id, member.member_id)
        if self._timers.deadline_ms(key) is None:
            self._timers.schedule(key, now_ms + _rebalance_ms(member))

    def joined(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has joined, and start the time for its SyncGroup."""
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_JOIN, group_id, member.member_id))
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member.member_id))
        self.start_classic_session(group_id, member, now_ms)
        self._timers.schedule(
            TimerKey(TimerKind.CONSUMER_SYNC, group_id, member.member_id), now_ms + _rebalance_ms(member)
        )

    def synced(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has requested its assignment."""
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_SYNC, group_id, member.member_id))
        self.start_classic_session(group_id, member, now_ms)

    def end_classic(self, group_id: str, member_id: str) -> None:
        """Cancel the deadlines that only members of the classic protocol have."""
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_JOIN, group_id, member_id))
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_SYNC, group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        for kind in MEMBER_DEADLINES:
            self._timers.cancel(TimerKey(kind, group_id, member_id))


def _rebalance_ms(member: ConsumerMember) -> int:
    return max(0, member.subscription.rebalance_timeout_ms)


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
