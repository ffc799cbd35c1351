"""The share coordinator of one broker: it keeps the state of share partitions for their leaders (KIP-932).

A share partition belongs to the partition of `__share_group_state` that its key hashes to. Snapshots replace what came
before them: from time to time the records before the oldest snapshot that counts are deleted, and states that have
not changed for long are written again, so that they do not keep older records from deletion.
"""

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from broker_core.config import BrokerConfig
from broker_core.coordinator.journal import Journal, JournalRecord
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.features.share_groups.states.records import (
    RecordType,
    ShareUpdate,
    read_key,
    read_snapshot,
    read_update,
    snapshot_record,
    update_record,
)
from broker_core.features.share_groups.states.state import (
    UNINITIALIZED,
    Outcome,
    SharePartitionKey,
    ShareState,
    ShareWrite,
    combine,
    standard_error,
)
from broker_core.types import coordinator_partition

logger = logging.getLogger(__name__)

_NEGATIVE = "The {} cannot be a negative number."
_UNINITIALIZED_WRITE = "Write operation on uninitialized share partition not allowed."
_UNINITIALIZED_READ = "Read operation on uninitialized share partition not allowed."
# Errors of the log, and the errors that callers get instead.
_APPEND_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def coordinator_key(key: SharePartitionKey) -> str:
    """Return the text by which the coordinator of a share partition is found, as FindCoordinator names it."""
    topic_id = urlsafe_b64encode(key.topic_id.bytes).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


class ShareShard:
    """The states of the share partitions whose keys hash to one partition."""

    def __init__(self, journal: Journal, partition: int, coordinator_epoch: int, updates_per_snapshot: int) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.states: dict[SharePartitionKey, ShareState] = {}
        # Updates since the last snapshot that was due because of their number.
        self.update_counts: dict[SharePartitionKey, int] = {}
        self._journal = journal
        self._updates_per_snapshot = updates_per_snapshot
        # The offset of the last snapshot of each share partition: records before the lowest are not needed.
        self._snapshots: dict[SharePartitionKey, int] = {}
        self._last_offset = -1

    def load(self) -> None:
        """Replay the journal; raise `DamageError` for a record that cannot be read."""
        for entry in self._journal.read(self.partition):
            if entry.control is None and entry.key is not None:
                try:
                    self._replay(entry.key, entry.value, entry.offset)
                except Exception as error:
                    # A client with write access can write anything.
                    raise DamageError(f"record at offset {entry.offset} cannot be replayed: {error!r}") from error

    def record(self, records: Sequence[JournalRecord], now_ms: int) -> ErrorCode:
        if not records:
            return ErrorCode.NONE
        try:
            base_offset = self._journal.append(self.partition, self.coordinator_epoch, records, now_ms)
        except KafkaError as error:
            return _APPEND_ERRORS.get(error.code, error.code)
        for offset, (key, value) in enumerate(records, base_offset):
            self._replay(key, value, offset)
        return ErrorCode.NONE

    def is_snapshot_due(self, key: SharePartitionKey) -> bool:
        """Return whether the next change of a share partition is recorded as a snapshot."""
        return self.update_counts.get(key, 0) >= self._updates_per_snapshot

    def first_needed_offset(self) -> int | None:
        """Return the offset before which no record is needed any more; None while all are."""
        if self._last_offset < 0:
            return None
        # Without any state, everything up to the last tombstone is done with.
        return min(self._snapshots.values(), default=self._last_offset + 1)

    def _replay(self, data: bytes, value: bytes | None, offset: int) -> None:
        key = read_key(data)
        if key is None:
            return
        self._last_offset = offset
        kind, share_partition = key
        if kind is RecordType.UPDATE:
            if value is not None:
                self._replay_update(share_partition, read_update(value))
        elif value is None:
            self.states.pop(share_partition, None)
            self.update_counts.pop(share_partition, None)
            self._snapshots.pop(share_partition, None)
        else:
            known, state = self.states.get(share_partition), read_snapshot(value)
            # Epochs never decrease: an older leader stays fenced.
            least = known or ShareState()
            self.states[share_partition] = state._replace(
                leader_epoch=max(state.leader_epoch, least.leader_epoch),
                state_epoch=max(state.state_epoch, least.state_epoch),
            )
            self._snapshots[share_partition] = offset
            if self.is_snapshot_due(share_partition):
                self.update_counts[share_partition] = 0

    def _replay_update(self, key: SharePartitionKey, update: ShareUpdate) -> None:
        before = self.states.get(key) or ShareState(update.snapshot_epoch, start_offset=update.start_offset)
        start_offset = before.start_offset if update.start_offset < 0 else update.start_offset
        self.states[key] = before._replace(
            start_offset=start_offset,
            leader_epoch=max(before.leader_epoch, update.leader_epoch),
            delivery_complete_count=update.delivery_complete_count,
            batches=combine(before.batches, update.batches, start_offset),
        )
        self.update_counts[key] = self.update_counts.get(key, 0) + 1


class ShareCoordinator:
    """The coordinator of the share partitions in the partitions of `__share_group_state` that this broker leads.

    `partition_exists` tells whether a topic with that id has the partition. `delete_before` deletes the records of a
    partition of `__share_group_state` before an offset. Kafka has complete counts since 4.2. Requests raise
    `KafkaError`.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        journal: Journal,
        partition_exists: Callable[[UUID, int], bool],
        delete_before: Callable[[int, int, int], None],
        records_complete_counts: bool = True,
    ) -> None:
        self._config = config
        self._journal = journal
        self._partition_exists = partition_exists
        self._delete_before = delete_before
        self._records_complete_counts = records_complete_counts
        self._shards: dict[int, ShareShard] = {}
        self._loading: set[int] = set()
        self._pruned: dict[int, int] = {}
        self._prune_ms: int | None = None
        self._snapshot_ms: int | None = None

    def become_leader(self, partition: int, coordinator_epoch: int, now_ms: int) -> None:
        """Load a partition; a call with an epoch that is not newer than the current one changes nothing."""
        current = self._shards.get(partition)
        if current is not None and current.coordinator_epoch >= coordinator_epoch:
            return
        self.resign(partition)
        shard = ShareShard(self._journal, partition, coordinator_epoch, self._config.share_updates_per_snapshot)
        self._loading.add(partition)
        try:
            shard.load()
        except DamageError as damage:
            logger.error(
                "__share_group_state-%d has no coordinator: %s. Its share partitions get NOT_COORDINATOR, all others"
                " work. Inspect the record with a dump tool. To go on without it, stop the broker, move the folder"
                " __share_group_state-%d away, and start again: its share partitions then begin again",
                partition,
                damage,
                partition,
            )
            self._loading.discard(partition)
            return
        self._loading.discard(partition)
        self._shards[partition] = shard
        if self._prune_ms is None:
            self._prune_ms = now_ms + self._config.share_prune_interval_ms
            self._snapshot_ms = now_ms + self._config.share_cold_snapshot_interval_ms

    def resign(self, partition: int) -> None:
        self._loading.discard(partition)
        self._shards.pop(partition, None)
        self._pruned.pop(partition, None)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> None:
        """Record a new state of a share partition, which begins at an offset, or at -1 where its leader decides."""
        shard = self._find(key)
        _check(state_epoch >= 0, "state epoch")
        known = shard.states.get(key)
        if known is not None and known.state_epoch > state_epoch:
            raise standard_error(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        counts = self._records_complete_counts and start_offset != UNINITIALIZED
        state = ShareState(
            start_offset=start_offset,
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            delivery_complete_count=0 if counts else UNINITIALIZED,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        _record(shard, snapshot_record(key, state), now_ms, "initialize")

    def write(self, key: SharePartitionKey, write: ShareWrite, now_ms: int) -> None:
        """Record a change; a leader or a state of an older epoch is fenced."""
        shard = self._find(key)
        _check(write.leader_epoch >= 0, "leader epoch")
        _check(write.state_epoch >= 0, "state epoch")
        state = _initialized(shard, key, write.leader_epoch, _UNINITIALIZED_WRITE)
        if state.state_epoch > write.state_epoch:
            raise standard_error(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        if not self._records_complete_counts:
            write = write._replace(delivery_complete_count=UNINITIALIZED)
        _record(shard, _change(shard, key, state, write, state.leader_epoch, now_ms), now_ms, "write")

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> ShareState:
        """Return the state for a leader, and record the leader's epoch, which fences its predecessors."""
        shard = self._find(key)
        _check(leader_epoch >= 0, "leader epoch")
        state = _initialized(shard, key, leader_epoch, _UNINITIALIZED_READ)
        self._check_exists(key)
        if state.leader_epoch != leader_epoch:
            write = ShareWrite(state.state_epoch, leader_epoch, state.start_offset, (), state.delivery_complete_count)
            _record(shard, _change(shard, key, state, write, leader_epoch, now_ms), now_ms, "read")
        return state

    def summarize(self, key: SharePartitionKey) -> ShareState:
        """Return the state for an administrator; a share partition without state is no error."""
        shard = self._find(key)
        self._check_exists(key)
        return shard.states.get(key) or ShareState()

    def delete(self, key: SharePartitionKey, now_ms: int) -> None:
        """Delete a state; one that does not exist is no error."""
        shard = self._find(key)
        self._check_exists(key)
        if key in shard.states:
            _record(shard, snapshot_record(key, None), now_ms, "delete")

    def forget_topics(self, topic_ids: Collection[UUID], now_ms: int) -> None:
        for shard in self._shards.values():
            doomed = [key for key in shard.states if key.topic_id in topic_ids]
            shard.record([snapshot_record(key, None) for key in doomed], now_ms)

    def states(self) -> dict[SharePartitionKey, ShareState]:
        return {key: state for shard in self._shards.values() for key, state in shard.states.items()}

    def advance(self, now_ms: int) -> None:
        """Write snapshots of states that have not changed for long, and delete records that are not needed."""
        if self._snapshot_ms is not None and now_ms >= self._snapshot_ms:
            self._snapshot_ms = now_ms + self._config.share_cold_snapshot_interval_ms
            self._snapshot_cold(now_ms)
        if self._prune_ms is not None and now_ms >= self._prune_ms:
            self._prune_ms = now_ms + self._config.share_prune_interval_ms
            self._prune(now_ms)

    def next_deadline_ms(self) -> int | None:
        if not self._shards or self._prune_ms is None or self._snapshot_ms is None:
            return None
        return min(self._prune_ms, self._snapshot_ms)

    def _snapshot_cold(self, now_ms: int) -> None:
        for shard in self._shards.values():
            # A snapshot that was written for this reason differs in its times; once all have one, nothing is due.
            if all(state.created_ms != state.written_ms for state in shard.states.values()):
                continue
            cold = [
                snapshot_record(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms))
                for key, state in shard.states.items()
                if now_ms - state.written_ms >= self._config.share_cold_snapshot_interval_ms
            ]
            shard.record(cold, now_ms)

    def _prune(self, now_ms: int) -> None:
        for partition, shard in self._shards.items():
            offset = shard.first_needed_offset()
            if offset is not None and self._pruned.get(partition) != offset:
                try:
                    self._delete_before(partition, offset, now_ms)
                except KafkaError as error:
                    logger.warning("__share_group_state-%d was not pruned: %s", partition, error)
                    continue
                self._pruned[partition] = offset

    def _find(self, key: SharePartitionKey) -> ShareShard:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _NEGATIVE.format("partition id"))
        partition = coordinator_partition(coordinator_key(key), self._config.share_state_topic_num_partitions)
        shard = self._shards.get(partition)
        if shard is None:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition in self._loading else ErrorCode.NOT_COORDINATOR
            raise standard_error(code)
        return shard

    def _check_exists(self, key: SharePartitionKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise standard_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _NEGATIVE.format(what))


def _initialized(shard: ShareShard, key: SharePartitionKey, leader_epoch: int, without: str) -> ShareState:
    """Return the state for a leader; raise INVALID_REQUEST `without` one, FENCED_LEADER_EPOCH for an older leader."""
    state = shard.states.get(key)
    if state is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, without)
    if state.leader_epoch > leader_epoch:
        raise standard_error(ErrorCode.FENCED_LEADER_EPOCH)
    return state


def _record(shard: ShareShard, record: JournalRecord, now_ms: int, what: str) -> None:
    error = shard.record([record], now_ms)
    if error:
        raise KafkaError(error, f"Unable to {what} share group state: {Outcome.of(error).message}")


def _change(
    shard: ShareShard, key: SharePartitionKey, state: ShareState, write: ShareWrite, leader_epoch: int, now_ms: int
) -> JournalRecord:
    """Return the record of a change: an update, or a snapshot after as many updates as the settings allow.

    Writes may arrive in another order than they were sent: a smaller start offset does not count, and of equal ones
    the larger number of completed deliveries does.
    """
    start_offset = max(write.start_offset, state.start_offset)
    complete_count = write.delivery_complete_count
    if write.start_offset == state.start_offset:
        complete_count = max(complete_count, state.delivery_complete_count)
    elif write.start_offset < state.start_offset:
        complete_count = state.delivery_complete_count
    if not shard.is_snapshot_due(key):
        update = ShareUpdate(
            state.snapshot_epoch, leader_epoch, start_offset, combine((), write.batches, start_offset), complete_count
        )
        return update_record(key, update)
    changed = state._replace(
        snapshot_epoch=state.snapshot_epoch + 1,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        created_ms=now_ms,
        written_ms=now_ms,
        batches=combine(state.batches, write.batches, start_offset),
        delivery_complete_count=complete_count,
    )
    return snapshot_record(key, changed)
