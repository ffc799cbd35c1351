"""The deadlines of the members of consumer groups.

A member of either protocol has a session. A member of the consumer protocol must revoke partitions in time, a member of
the classic protocol must rejoin, and request its assignment after it joined.
"""

from collections.abc import Callable
from typing import Final

from broker_core.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from broker_core.coordinator.groups.consumer.requests import ConsumerGroupSettings
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers

MEMBER_DEADLINES: Final = frozenset(
    {
        TimerKind.CONSUMER_SESSION,
        TimerKind.CONSUMER_REVOCATION,
        TimerKind.CONSUMER_JOIN,
        TimerKind.CONSUMER_SYNC,
    }
)


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline of a member's next heartbeat."""
    return TimerKey(TimerKind.CONSUMER_SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline by which a member must have revoked partitions."""
    return TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline by which a member of the classic protocol must have joined again."""
    return TimerKey(TimerKind.CONSUMER_JOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline by which a member of the classic protocol must have requested its assignment."""
    return TimerKey(TimerKind.CONSUMER_SYNC, group_id, member_id)


class Deadlines:
    """The start and the end of the deadlines of members."""

    def __init__(self, timers: Timers, settings_of: Callable[[str], ConsumerGroupSettings]) -> None:
        self._timers = timers
        self._settings_of = settings_of

    def start_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Restart the session of a member of the consumer protocol, or of any member after a load, as Kafka does."""
        timeout_ms = self._settings_of(group_id).session_timeout_ms
        self._timers.schedule(session_timer(group_id, member_id), now_ms + timeout_ms)

    def start_classic_session(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member of the classic protocol, which chose its timeout itself."""
        classic = member.subscription.classic
        if classic is not None:
            self._timers.schedule(session_timer(group_id, member.member_id), now_ms + classic.session_timeout_ms)

    def start_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        self._timers.schedule(revocation_timer(group_id, member.member_id), now_ms + _rebalance_ms(member))

    def end_revocation(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(revocation_timer(group_id, member_id))

    def expect_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Start the time in which a member must join again, unless it has started."""
        key = join_timer(group_id, member.member_id)
        if self._timers.deadline_ms(key) is None:
            self._timers.schedule(key, now_ms + _rebalance_ms(member))

    def joined(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has joined, and start the time for its SyncGroup."""
        self._timers.cancel(join_timer(group_id, member.member_id))
        self._timers.cancel(revocation_timer(group_id, member.member_id))
        self.start_classic_session(group_id, member, now_ms)
        self._timers.schedule(sync_timer(group_id, member.member_id), now_ms + _rebalance_ms(member))

    def synced(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Restart the session of a member that has requested its assignment."""
        self._timers.cancel(sync_timer(group_id, member.member_id))
        self.start_classic_session(group_id, member, now_ms)

    def end_classic(self, group_id: str, member_id: str) -> None:
        """Cancel the deadlines that only members of the classic protocol have."""
        self._timers.cancel(join_timer(group_id, member_id))
        self._timers.cancel(sync_timer(group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        for kind in MEMBER_DEADLINES:
            self._timers.cancel(TimerKey(kind, group_id, member_id))

    def end_all(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self.end(group.group_id, member_id)


def _rebalance_ms(member: ConsumerMember) -> int:
    return max(0, member.subscription.rebalance_timeout_ms)
