"""The share partitions of one broker, for the partitions that it leads and members fetch.

A share session has the partitions that a member fetches, and the order of its requests (KIP-932). It belongs to a
connection. When the connection is lost, the records that its member has acquired are released.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.broker.broker import Broker
from broker_core.errors import STANDARD_MESSAGES, ErrorCode, KafkaError
from broker_core.features.share_groups.group_settings import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    ShareFetchSettings,
    duration_ms,
)
from broker_core.features.share_groups.partitions.acknowledgment import Acknowledgment, acknowledge
from broker_core.features.share_groups.partitions.share_partition import FENCING, SharePartition, persist_error
from broker_core.features.share_groups.states.coordinator import ShareCoordinator
from broker_core.features.share_groups.states.state import UNINITIALIZED, SharePartitionKey, ShareWrite, standard_error
from broker_core.log.partition_log import PartitionLog
from broker_core.types import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SharedPartition(NamedTuple):
    """A partition as a member names it, with the name that its topic had at that time, None for an unknown topic."""

    topic_id: UUID
    partition: int
    topic: str | None


@dataclass(slots=True)
class ShareSession:
    """One session; its epoch counts the member's requests in it.

    The values of `partitions` tell whether the next response has to name a partition, though it has no records.
    """

    key: SessionKey
    connection: object
    epoch: int = 1
    partitions: dict[SharedPartition, bool] = field(default_factory=dict)

    def advance(self, epoch: int) -> None:
        """Check the epoch of a request and count the request; raise INVALID_SHARE_SESSION_EPOCH for another epoch."""
        if epoch != self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session of {self.key} is at epoch {self.epoch}"
            )
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def update(self, named: Iterable[SharedPartition], forgotten: Iterable[tuple[UUID, int]]) -> None:
        known = {each[:2] for each in self.partitions}
        for each in named:
            if each[:2] not in known:
                self.partitions[each] = True
        gone = set(forgotten)
        for each in [each for each in self.partitions if each[:2] in gone]:
            del self.partitions[each]

    def must_answer(self, partition: SharedPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return whether a response names the partition: for records, for an error, and once after either change."""
        is_due = self.partitions.get(partition, False)
        if partition in self.partitions:
            self.partitions[partition] = has_error
            if has_records:
                # A partition that had records comes last next time.
                self.partitions[partition] = self.partitions.pop(partition)
        return has_records or has_error or is_due


class ShareCounts:
    """What a cluster counts: acknowledged records by type, and records whose lock ended, by group and partition."""

    def __init__(self) -> None:
        self.acknowledgments: Counter[int] = Counter()
        self.lock_timeouts: Counter[tuple[str, TopicPartition]] = Counter()


class SharePartitions:
    """The share partitions in memory, with the sessions of the members that fetch them."""

    def __init__(
        self,
        broker: Broker,
        settings_of: Callable[[str], ShareFetchSettings],
        coordinator_of: Callable[[SharePartitionKey], ShareCoordinator],
    ) -> None:
        self._broker = broker
        self._settings_of = settings_of
        self._counts = broker.meters.states.of(ShareCounts)
        self._coordinator_of = coordinator_of
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        # No lock ends before this time.
        self._locked_until_ms: int | None = None
        self._sessions: dict[SessionKey, ShareSession] = {}

    def get(self, key: SharePartitionKey, now_ms: int) -> SharePartition:
        """Return a share partition, read from the share coordinator if necessary; raise the error of its partition."""
        partition = self.find(key)
        if partition is not None:
            return partition
        name = self._broker.metadata.names.get(key.topic_id, "")
        topic_partition = TopicPartition(name, key.partition)
        try:
            log, leader_epoch = self._broker.led_log(topic_partition, now_ms)
        except KafkaError as error:
            raise KafkaError(error.code, STANDARD_MESSAGES.get(error.code, error.message)) from None
        partition = SharePartition(
            key,
            topic_partition,
            leader_epoch,
            lambda: self._settings_of(key.group_id),
            self._persist,
        )
        try:
            state = self._coordinator_of(key).read(key, leader_epoch, self._broker.now_ms())
        except KafkaError as error:
            raise persist_error(error) from error
        start_offset = state.start_offset
        if start_offset == UNINITIALIZED:
            start_offset = _reset_offset(log, self._settings_of(key.group_id).auto_offset_reset, now_ms)
        partition.load(state, start_offset)
        self._partitions[key] = partition
        return partition

    def _persist(self, key: SharePartitionKey, write: ShareWrite) -> None:
        self._coordinator_of(key).write(key, write, self._broker.now_ms())

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """Return a share partition in memory; one of an earlier leader epoch or a deleted topic is forgotten."""
        partition = self._partitions.get(key)
        if partition is not None and not self._is_current(partition):
            self._forget(key)
            return None
        return partition

    def _is_current(self, partition: SharePartition) -> bool:
        """Return whether the topic exists, and this broker leads it as when the state was read."""
        metadata, topic_partition = self._broker.metadata, partition.topic_partition
        if metadata.names.get(partition.key.topic_id) != topic_partition.topic:
            return False
        leadership = metadata.leadership(topic_partition)
        return (leadership.leader, leadership.leader_epoch) == (self._broker.broker_id, partition.leader_epoch)

    def acknowledge(
        self, key: SharePartitionKey, member_id: str, acknowledgments: list[Acknowledgment], now_ms: int
    ) -> None:
        """Acknowledge records; raise the error for this partition."""
        partition = self.find(key)
        if partition is None:
            raise standard_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            acknowledge(partition, member_id, acknowledgments, now_ms)
            for each in acknowledgments:
                self._counts.acknowledgments.update(each.counts())
        except KafkaError as error:
            self._forget_if_fenced(key, error)
            raise
        finally:
            self.lock_changed(partition)
            self._broker.logs.moved(partition.topic_partition)

    def session(self, key: SessionKey) -> ShareSession:
        """Return a member's session; raise SHARE_SESSION_NOT_FOUND if it has none."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"{key} has no share session")
        return session

    def shared_by(self, key: SessionKey) -> Collection[SharedPartition]:
        """Return the partitions in a member's session; none if it has no session."""
        session = self._sessions.get(key)
        return () if session is None else session.partitions.keys()

    def open_session(self, key: SessionKey, connection: object, named: Iterable[SharedPartition]) -> ShareSession:
        """Open a session, in place of the member's former one; raise SHARE_SESSION_LIMIT_REACHED if all are taken."""
        self._sessions.pop(key, None)
        limit = self._broker.config.group_share_max_share_sessions
        if len(self._sessions) >= limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {limit} share sessions")
        session = self._sessions[key] = ShareSession(key, connection, partitions=dict.fromkeys(named, False))
        return session

    def close_session(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        for each in () if session is None else session.partitions:
            partition = self.find(SharePartitionKey(key.group_id, each.topic_id, each.partition))
            if partition is None:
                continue
            try:
                partition.release_member(key.member_id)
            except KafkaError as error:
                self._forget_if_fenced(partition.key, error)
            self._broker.logs.moved(partition.topic_partition)

    def connection_lost(self, connection: object, last_group_id: str) -> None:
        """Close the sessions of a connection; groups of it without any session left are forgotten, as in Kafka.

        The group of the last session that was opened on it counts even if that one is closed: an administrator sets
        offsets when all members are gone.
        """
        groups = {last_group_id}
        for key in [key for key, session in self._sessions.items() if session.connection is connection]:
            self.close_session(key)
            groups.add(key.group_id)
        groups -= {key.group_id for key in self._sessions}
        for each in list(self._partitions):
            if each.group_id in groups:
                self._forget(each)

    def forget_all(self) -> None:
        """Forget all sessions and share partitions: the broker restarts, or share groups are disabled."""
        self._sessions.clear()
        for key in list(self._partitions):
            self._forget(key)

    def advance(self, now_ms: int) -> None:
        if self._locked_until_ms is None or now_ms < self._locked_until_ms:
            return
        for key in list(self._partitions):
            partition = self.find(key)
            ended = 0 if partition is None else partition.expire_locks(now_ms)
            if partition is not None and ended:
                self._counts.lock_timeouts[key.group_id, partition.topic_partition] += ended
                self._broker.logs.moved(partition.topic_partition)
        deadlines = [partition.next_lock_deadline_ms() for partition in self._partitions.values()]
        self._locked_until_ms = min((each for each in deadlines if each is not None), default=None)

    def next_deadline_ms(self) -> int | None:
        return self._locked_until_ms

    def lock_changed(self, partition: SharePartition) -> None:
        """Take a lock into account that was acquired or renewed."""
        deadline_ms = partition.next_lock_deadline_ms()
        if deadline_ms is not None and (self._locked_until_ms is None or deadline_ms < self._locked_until_ms):
            self._locked_until_ms = deadline_ms

    def in_memory(self) -> Iterable[SharePartition]:
        """Return the share partitions in memory, for inspection; some may be of an earlier leader epoch."""
        return self._partitions.values()

    def current(self) -> list[SharePartition]:
        return [partition for partition in self._partitions.values() if self._is_current(partition)]

    def _forget_if_fenced(self, key: SharePartitionKey, error: KafkaError) -> None:
        if error.code in FENCING:
            logger.info("the state of share partition %s is read again: %s", key, error)
            self._forget(key)

    def _forget(self, key: SharePartitionKey) -> None:
        partition = self._partitions.pop(key, None)
        if partition is not None:
            self._broker.logs.moved(partition.topic_partition)


def _reset_offset(log: PartitionLog, reset: str, now_ms: int) -> int:
    """Return the start offset of a group that has none yet, by its setting."""
    if reset == EARLIEST:
        return log.log_start_offset
    if reset == LATEST:
        return log.high_watermark
    age_ms = duration_ms(reset.removeprefix(BY_DURATION)) or 0
    found = log.offset_for_timestamp(now_ms - age_ms, IsolationLevel.READ_UNCOMMITTED)
    if found is None:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"Offset for timestamp {now_ms - age_ms} not found for topic partition: {log.topic_partition}",
        )
    return found.offset
