"""The share partitions of one led partition of `__share_group_state`, changed only by the replay of its records."""

from collections.abc import Sequence

from broker_core.coordinator.journal import Journal, JournalRecord
from broker_core.errors import DamageError, ErrorCode, KafkaError
from broker_core.features.share_groups.states.records import (
    RecordType,
    ShareUpdate,
    read_key,
    read_snapshot,
    read_update,
)
from broker_core.features.share_groups.states.state import SharePartitionKey, ShareState, combine

# Errors of the log, and the errors that callers get instead.
_APPEND_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


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
        """Append the records, then replay them; after an error nothing has changed."""
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
        share_partition = key.share_partition
        if key.kind is RecordType.UPDATE:
            if value is not None:
                self._replay_update(share_partition, read_update(value))
        elif value is None:
            self.states.pop(share_partition, None)
            self.update_counts.pop(share_partition, None)
            self._snapshots.pop(share_partition, None)
        else:
            known, state = self.states.get(share_partition), read_snapshot(value)
            # Epochs never decrease: an older leader stays fenced.
            least = known or ShareState(0)
            self.states[share_partition] = state._replace(
                leader_epoch=max(state.leader_epoch, least.leader_epoch),
                state_epoch=max(state.state_epoch, least.state_epoch),
            )
            self._snapshots[share_partition] = offset
            if self.is_snapshot_due(share_partition):
                self.update_counts[share_partition] = 0

    def _replay_update(self, key: SharePartitionKey, update: ShareUpdate) -> None:
        before = self.states.get(key) or ShareState(update.start_offset, snapshot_epoch=update.snapshot_epoch)
        start_offset = before.start_offset if update.start_offset < 0 else update.start_offset
        self.states[key] = before._replace(
            start_offset=start_offset,
            leader_epoch=max(before.leader_epoch, update.leader_epoch),
            delivery_complete_count=update.delivery_complete_count,
            batches=combine(before.batches, update.batches, start_offset),
        )
        self.update_counts[key] = self.update_counts.get(key, 0) + 1
