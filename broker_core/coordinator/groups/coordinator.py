"""The group coordinator of one broker: groups of both protocols, their offsets and their journal.

The journal is `__consumer_offsets`: a group belongs to the partition its id hashes to, and the leader of that
partition coordinates the group. Durable state (offsets, completed generations) is decided, recorded and
replayed by `shard`. The progress of a rebalance is in memory only, as in Kafka: after a failover
the members find a stable group and continue, or rejoin.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.groups.classic.group import ClassicGroup, JoinReply, SyncReply
from broker_core.coordinator.groups.classic.membership import ClassicMembership
from broker_core.coordinator.groups.classic.rebalance import Rebalance, Replies
from broker_core.coordinator.groups.classic.requests import (
    NO_GENERATION,
    GroupDescription,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    SyncGroup,
    SyncResult,
)
from broker_core.coordinator.groups.classic.states import GroupState
from broker_core.coordinator.groups.consumer.group import ConsumerGroup
from broker_core.coordinator.groups.consumer.membership import ClassicMembers, ConsumerMembership
from broker_core.coordinator.groups.consumer.migration import MEMBER_DEADLINES
from broker_core.coordinator.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
)
from broker_core.coordinator.groups.consumer.subscriptions import Topics
from broker_core.coordinator.groups.group_types import FeatureGroup, FeatureGroups, OwnSettings, group_types
from broker_core.coordinator.groups.offset_commits import OffsetCommits, expired_partitions
from broker_core.coordinator.groups.offsets.store import FetchedOffset, OffsetCommit, OffsetsResult
from broker_core.coordinator.groups.shard import (
    NEWEST,
    GroupListing,
    GroupShard,
    KafkaRecords,
    listed,
    translate_append_error,
)
from broker_core.coordinator.journal import Journal
from broker_core.coordinator.timers import TimerKey, TimerKind, Timers
from broker_core.errors import DamageError, ErrorCode
from broker_core.types import TopicPartition, TransactionEnd, coordinator_partition

logger = logging.getLogger(__name__)

_EXPIRY = TimerKey(TimerKind.EXPIRY)
# The states in which a member's commit renews its session, as a heartbeat does.
_RENEWING = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
# The transaction coordinator's table of answers to markers does not have these errors (rules A.13).
_NOT_HERE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class GroupCoordinator:
    """The coordinator of the groups of every partition of `__consumer_offsets` that this broker leads.

    `new_member_id` makes a unique member id from a client id or instance id. Joins and syncs are answered
    exactly once, in the same call or a later one (`advance` included), never during a change.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        group_settings: Callable[[str], ConsumerGroupSettings],
        own_settings: OwnSettings,
        journal: Journal,
        partition_count: int,
        new_member_id: Callable[[str], str],
        topics: Topics,
        recorded: KafkaRecords = NEWEST,
    ) -> None:
        self._config = config
        self._journal = journal
        self._recorded = recorded
        self._partition_count = partition_count
        self._shards: dict[int, GroupShard] = {}
        self._loading: set[int] = set()
        self._timers = Timers()
        self._replies = Replies()
        self._rebalance = Rebalance(config, self._timers, self._replies)
        self._membership = ClassicMembership(config, self._timers, self._replies, self._rebalance, new_member_id)
        self._offsets = OffsetCommits(config, topics, recorded.of_4_1)
        self._consumers = ConsumerMembership(
            config, group_settings, self._timers, topics, new_member_id, self._rebalance
        )
        # What handles the groups of features, by type.
        self.of_features: dict[str, FeatureGroups] = {
            each.name: each.coordinate(config, own_settings, self._timers, topics, self._find) for each in group_types()
        }

    def partition_for(self, group_id: str) -> int:
        return coordinator_partition(group_id, self._partition_count)

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Load a partition and coordinate its groups; members get a full session to heartbeat.

        A call with an epoch that is not newer than the current one changes nothing. If the journal cannot be
        read the error is raised and requests are answered with COORDINATOR_LOAD_IN_PROGRESS; call again then. A record
        that cannot be read is logged, and as in Kafka the partition has no coordinator: NOT_COORDINATOR.
        """
        current = self._shards.get(partition)
        if current is not None:
            if current.coordinator_epoch >= coordinator_epoch:
                return
            self.resign(partition)
        shard = GroupShard(self._journal, partition, coordinator_epoch, self._recorded)
        self._loading.add(partition)
        try:
            shard.load()
        except DamageError as damage:
            self._loading.discard(partition)
            logger.error(
                "__consumer_offsets-%d has no coordinator: %s. Its groups get NOT_COORDINATOR, all other groups"
                " work. Inspect the record with a dump tool. To go on without it, stop the broker, move the folder"
                " __consumer_offsets-%d away, and start again: the groups then begin without committed offsets",
                partition,
                damage,
                partition,
            )
            return
        self._loading.discard(partition)
        self._shards[partition] = shard
        for group in list(shard.groups.values()):
            self._resume(shard, group, now_ms)
        for consumer_group in shard.consumer_groups.values():
            self._consumers.resume(consumer_group, now_ms)
        for each in self.of_features.values():
            each.resume(shard, now_ms)
        if self._timers.deadline_ms(_EXPIRY) is None:
            self._schedule_expiry(now_ms)
        self._replies.deliver()

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition; waiting members are answered NOT_COORDINATOR."""
        self._loading.discard(partition)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            for group in shard.groups.values():
                self._rebalance.abandon(group, ErrorCode.NOT_COORDINATOR)
            for consumer_group in shard.consumer_groups.values():
                self._consumers.abandon(consumer_group)
            for each in self.of_features.values():
                each.abandon(shard)
        self._replies.deliver()

    def groups_of_type(self, name: str) -> list[FeatureGroup]:
        return [group for shard in self._shards.values() for group in shard.of_features.get(name, {}).values()]

    def join_group(self, request: JoinGroup, now_ms: int, reply: JoinReply) -> None:
        config = self._config
        error, shard = self._find(request.group_id)
        if shard is None:
            self._replies.add(reply, JoinResult(error, request.member_id))
        elif not (
            config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            self._replies.add(reply, JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        elif shard.feature_group(request.group_id) is not None:
            self._replies.add(reply, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
        elif (result := self._consumers.classic.join(shard, request, now_ms)) is not None:
            self._replies.add(reply, result)
        else:
            self._membership.join(shard, request, now_ms, reply)
        self._replies.deliver()

    def sync_group(self, request: SyncGroup, now_ms: int, reply: SyncReply) -> None:
        """Exchange assignments: the leader sends them, each member gets its own."""
        error, shard = self._find(request.group_id)
        if shard is None:
            self._replies.add(reply, SyncResult(error))
        elif request.group_id in shard.consumer_groups:
            self._replies.add(reply, self._consumers.classic.sync(shard, request, now_ms))
        else:
            self._membership.sync(shard, request, now_ms, reply)
        self._replies.deliver()

    def heartbeat(self, request: Heartbeat, now_ms: int) -> ErrorCode:
        """Renew a session; REBALANCE_IN_PROGRESS tells the member to rejoin."""
        error, shard = self._find(request.group_id)
        return error if shard is None else self._members_in(shard, request.group_id).heartbeat(shard, request, now_ms)

    def leave_group(self, request: LeaveGroup, now_ms: int) -> LeaveResult:
        error, shard = self._find(request.group_id)
        if shard is None:
            return LeaveResult(error)
        result = self._members_in(shard, request.group_id).leave(shard, request, now_ms)
        self._replies.deliver()
        return result

    def consumer_heartbeat(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatResult:
        error, shard = self._find(request.group_id, may_be_empty=True)
        if shard is None:
            return ConsumerHeartbeatResult(error)
        if shard.feature_group(request.group_id) is not None:
            return ConsumerHeartbeatResult(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        result = self._consumers.heartbeat(shard, request, now_ms)
        self._replies.deliver()
        return result

    def commit_offsets(self, request: OffsetCommit, now_ms: int) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets; without a generation the group may be unknown, and its id may be empty.

        In a transaction, the broker has verified it or added the partition beforehand.
        """
        is_plain = request.producer is None
        error, shard = self._find(request.group_id, may_be_empty=is_plain)
        if shard is None:
            return dict.fromkeys(request.offsets, error)
        verdicts = self._offsets.commit(shard, request, now_ms)
        group = shard.groups.get(request.group_id)
        caller = request.member_id, request.group_instance_id, request.generation_id
        if group is not None and is_plain and group.state in _RENEWING and not group.caller_error(*caller):
            self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
        return verdicts

    def check_transactional_commit(self, request: OffsetCommit) -> ErrorCode:
        """Return the error if the group is not coordinated here, for a check before its transaction is changed."""
        return self._find(request.group_id)[0]

    def complete_transaction(self, partition: int, end: TransactionEnd, now_ms: int) -> ErrorCode:
        """Write the marker of a transaction that committed offsets, then apply or drop them."""
        shard = self._shards.get(partition)
        if shard is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = translate_append_error(shard.record_marker(end, now_ms))
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if answer in _NOT_HERE else answer

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = NO_GENERATION,
    ) -> OffsetsResult[FetchedOffset]:
        """Return committed offsets; all of the group's if `partitions` is None.

        With `require_stable`, a partition that an open transaction has written to answers
        UNSTABLE_OFFSET_COMMIT (KIP-447). A consumer
        group fences callers that name a member which is not, or is not up to date (KIP-848).
        """
        error, shard = self._find(group_id, may_be_empty=True)
        if shard is not None and group_id in shard.consumer_groups:
            error = shard.consumer_groups[group_id].fetch_error(member_id, member_epoch)
        elif shard is not None and member_epoch != NO_GENERATION and shard.feature_group(group_id) is not None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if shard is None or error is not ErrorCode.NONE:
            return OffsetsResult(error)
        return self._offsets.fetch(shard, group_id, partitions, require_stable=require_stable)

    def describe(self, group_id: str) -> GroupDescription:
        error, shard = self._find(group_id, may_be_empty=True)
        if shard is None:
            return GroupDescription(error, group_id)
        group = shard.groups.get(group_id)
        if group is None:
            is_other = group_id in shard.consumer_groups or shard.feature_group(group_id) is not None
            message = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
            return GroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message=message)
        return group.describe()

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        error, shard = self._find(group_id)
        if shard is None:
            return ConsumerGroupDescription(group_id, error)
        group = shard.consumer_groups.get(group_id)
        if group is None:
            is_other = group_id in shard.groups or shard.feature_group(group_id) is not None
            message = f"Group {group_id} {'is not a consumer group' if is_other else 'not found'}."
            return ConsumerGroupDescription(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return self._consumers.describe(group)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        return listed((shard for _, shard in sorted(self._shards.items())), states, types)

    def delete_groups(self, group_ids: Iterable[str], now_ms: int) -> dict[str, ErrorCode]:
        return {group_id: self._delete_group(group_id, now_ms) for group_id in group_ids}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> OffsetsResult[ErrorCode]:
        """Delete offsets of partitions that no member reads (KIP-496)."""
        error, shard = self._find(group_id)
        if shard is None:
            return OffsetsResult(error)
        return self._offsets.delete(shard, group_id, partitions, now_ms)

    def forget_partitions(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        for shard in self._shards.values():
            for group_id in shard.offsets.group_ids():
                shard.record(self._offsets.tombstones(shard, group_id, partitions), now_ms)

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None:
        for each in self.of_features.values():
            each.forget_topics(self._shards.values(), topic_ids, now_ms)

    def advance(self, now_ms: int) -> None:
        while (key := self._timers.take_due(now_ms)) is not None:
            self._fire(key, now_ms)
        self._replies.deliver()

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[ErrorCode, GroupShard | None]:
        """Return the group's partition, or the error if it is not led here or the group id is empty and must not be."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID, None
        partition = self.partition_for(group_id)
        if partition in self._shards:
            return ErrorCode.NONE, self._shards[partition]
        is_loading = partition in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR, None

    def _members_in(self, shard: GroupShard, group_id: str) -> ClassicMembership | ClassicMembers:
        """Return what handles the requests of the classic protocol to a group."""
        return self._consumers.classic if group_id in shard.consumer_groups else self._membership

    def _resume(self, shard: GroupShard, group: ClassicGroup, now_ms: int) -> None:
        """Start the sessions of a group just loaded; one above the maximum size has to rebalance."""
        for member in group.members.values():
            self._rebalance.restart_session(group, member, now_ms)
        if len(group.members) > self._config.group_max_size:
            self._rebalance.prepare(shard, group, now_ms)

    def _fire(self, key: TimerKey, now_ms: int) -> None:
        if key.kind is TimerKind.EXPIRY:
            self._expire(now_ms)
            return
        shard = self._shards[self.partition_for(key.group_id)]
        if key.kind in MEMBER_DEADLINES:
            self._consumers.deadline_passed(shard, key, now_ms)
            return
        if key.kind is TimerKind.FEATURE:
            for each in self.of_features.values():
                each.deadline_passed(shard, key.group_id, key.member_id, now_ms)
            return
        group = shard.groups[key.group_id]
        if key.kind is TimerKind.MEMBER:
            self._rebalance.member_deadline_passed(shard, group, key.member_id, now_ms)
        elif key.kind is TimerKind.JOIN:
            self._rebalance.join_deadline_passed(shard, group, now_ms)
        else:
            self._rebalance.sync_deadline_passed(shard, group, now_ms)

    def _schedule_expiry(self, now_ms: int) -> None:
        self._timers.schedule(_EXPIRY, now_ms + self._config.offsets_retention_check_interval_ms)

    def _expire(self, now_ms: int) -> None:
        for shard in self._shards.values():
            for group in list(shard.groups.values()):
                self._expire_offsets(shard, group, now_ms)
                # A client that was given a member id is about to rejoin with it.
                is_unused = group.state is GroupState.EMPTY and not group.pending_joins
                if is_unused and not shard.offsets.has_offsets(group.group_id):
                    self._delete_expired(shard, group, now_ms)
            for consumer_group in list(shard.consumer_groups.values()):
                self._expire_offsets(shard, consumer_group, now_ms)
                if not consumer_group.members and not shard.offsets.has_offsets(consumer_group.group_id):
                    shard.record(consumer_group.tombstones(), now_ms)
        if self._shards:
            self._schedule_expiry(now_ms)

    def _expire_offsets(self, shard: GroupShard, group: ClassicGroup | ConsumerGroup, now_ms: int) -> None:
        retention_ms = self._config.offsets_retention_minutes * 60_000
        expired = expired_partitions(shard.offsets, group, now_ms, retention_ms)
        shard.record(self._offsets.tombstones(shard, group.group_id, expired), now_ms)

    def _delete_expired(self, shard: GroupShard, group: ClassicGroup, now_ms: int) -> None:
        if shard.record(shard.group_tombstone(group.group_id), now_ms) is ErrorCode.NONE:
            self._rebalance.end_group(group)
            del shard.groups[group.group_id]

    def _delete_group(self, group_id: str, now_ms: int) -> ErrorCode:
        error, shard = self._find(group_id, may_be_empty=True)
        if shard is None:
            return error
        error = self._offsets.delete_group(shard, group_id, now_ms)
        if error is ErrorCode.NONE:
            group = shard.groups.pop(group_id, None)
            if group is not None:
                self._rebalance.end_group(group)
        return error
