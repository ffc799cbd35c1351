"""The log of one partition, which is the interface of this package.

Every append checks everything, rolls the segment if needed, writes, and only then updates the state. A
refusal or a failed write therefore changes nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

from broker_core.config import TopicConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.cleaner import Cleaner, CompactionResult, is_compacted, plan_cleaning
from broker_core.log.indexes import AbortedEntry
from broker_core.log.producer_state import SENTINEL, AppendOrigin, Guard
from broker_core.log.recovery import recover_log
from broker_core.log.recovery_table import RecoveryFinding
from broker_core.log.retention import TrimmedLog
from broker_core.log.segment import MAX_RELATIVE_OFFSET, Segment, largest_unfilled_bytes
from broker_core.log.validation import is_stamped, validate_batch
from broker_core.ports import File, Storage, Syncs, run_steps
from broker_core.records.control import ControlType, EndTxnMarker, build_end_txn_marker
from broker_core.records.header import BatchHeader, assign_offsets, write_timestamps
from broker_core.types import NO_TIMESTAMP, TimestampType, TopicPartition, TransactionEnd

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


class RollLimits(NamedTuple):
    """The limits of the active segment in the topic's settings, which change only with these."""

    segment_bytes: int
    segment_ms: int
    index_bytes: int
    # Segments up to this size need no look at their indexes.
    unfilled_bytes: int

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        segment_ms = config.segment_ms
        if is_compacted(config):
            # The active segment is never cleaned, so it must not be active for longer than the maximum compaction lag.
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        return cls(
            config.largest_segment_bytes,
            segment_ms,
            config.segment_index_bytes,
            largest_unfilled_bytes(config.segment_index_bytes),
        )

    def are_exceeded(self, active: Segment, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> bool:
        used_bytes = active.size_bytes
        if used_bytes == 0:
            return False
        return (
            used_bytes + size_bytes > self.segment_bytes
            # Age is measured by the records' timestamps, so that old records written today roll as they did originally.
            or 0 <= active.rolling_since_ms < max_timestamp_ms - self.segment_ms
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or (used_bytes > self.unfilled_bytes and active.is_index_full(self.index_bytes))
        )


class AppendResult(NamedTuple):
    """The offset and time of an appended batch; for a duplicate, as of the original."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class PartitionLog(TrimmedLog):
    """The log of one partition; created by `open`."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        producer_expiration_ms: int,
        verification_enabled: bool,
    ) -> None:
        super().__init__(storage, folder, topic_partition, config)
        self._roll_limits = RollLimits.of(config)
        self._producer_expiration_ms = producer_expiration_ms
        self._verification_enabled = verification_enabled
        self.findings: list[RecoveryFinding] = []

    @classmethod
    def open(
        cls,
        storage: Storage,
        folder: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        now_ms: int,
        *,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        verification_enabled: bool = True,
    ) -> Self:
        """Return the log in `folder`, recovered after any crash; in a new folder, an empty log."""
        log = cls(storage, folder, topic_partition, config, producer_expiration_ms, verification_enabled)
        log.findings = recover_log(log, now_ms, producer_expiration_ms)
        return log

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._roll_limits = RollLimits.of(config)

    def update_producer_settings(self, *, producer_expiration_ms: int, verification_enabled: bool) -> None:
        self._producer_expiration_ms = producer_expiration_ms
        self._verification_enabled = verification_enabled

    # Appending.

    def append_as_leader(
        self,
        data: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_guard: Guard | None = None,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """Append one batch and return its offset and time, or the offset and time of the batch it repeats.

        A `bytearray` is modified in place. `header` is the batch's, if the caller has read it already.
        `transaction_guard` comes from `start_verification`, which also records whether the client bumps its epoch with
        each transaction. Raises `KafkaError` by rules C.1/13 to C.1/27, and KAFKA_STORAGE_ERROR if the disk
        fails; the log is then unchanged.
        """
        batch, header, stamp_ms = validate_batch(data, self.config, origin, now_ms, header)
        if len(batch) > self._roll_limits.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {len(batch)} bytes does not fit a segment of "
                f"segment.bytes={self._roll_limits.segment_bytes}",
            )
        if header.producer_id >= 0:
            duplicate = self.producer_state.check_batch(
                header,
                origin=origin,
                guard=SENTINEL if transaction_guard is None else transaction_guard,
                verification_enabled=self._verification_enabled,
            )
            if duplicate is not None:
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp_ms, self.log_start_offset, True
                )
        return self._append(batch, header, leader_epoch, stamp_ms)

    def append_end_txn_marker(self, end: TransactionEnd, *, now_ms: int, leader_epoch: int) -> AppendResult:
        """Append the marker that ends the producer's transaction in this partition.

        Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED by rules C.6.
        """
        producer_id, producer_epoch = end.producer
        self.producer_state.check_marker(producer_id, producer_epoch, end.coordinator_epoch, end.transaction_version)
        batch = build_end_txn_marker(
            commit=end.commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        marker = EndTxnMarker(ControlType.COMMIT if end.commit else ControlType.ABORT, end.coordinator_epoch)
        stamp_ms = now_ms if is_stamped(self.config) else None
        return self._append(batch.data, batch.header, leader_epoch, stamp_ms, marker)

    def _append(
        self,
        data: bytearray,
        header: BatchHeader,
        leader_epoch: int,
        stamp_ms: int | None,
        marker: EndTxnMarker | None = None,
    ) -> AppendResult:
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        assign_offsets(data, 0, base_offset, leader_epoch)
        if stamp_ms is not None:
            write_timestamps(data, 0, header, TimestampType.LOG_APPEND_TIME, stamp_ms)
        try:
            active = self.segments.active
            if self._roll_limits.are_exceeded(active, len(data), last_offset, header.max_timestamp):
                self.roll()
                active = self.segments.active
            active.append(data, last_offset, header.max_timestamp, self.config.index_interval_bytes)
        except OSError as error:
            raise self._storage_error("the batch was not written", error) from error
        if header.producer_id >= 0:
            if marker is None:
                self.producer_state.apply_batch(header, base_offset)
            elif (aborted := self.producer_state.apply_marker(header, base_offset, marker)) is not None:
                active.transaction_index.append(aborted)
        self.leader_epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = last_offset + 1
        self.unsynced_bytes += len(data)
        answered_ms = NO_TIMESTAMP if stamp_ms is None else stamp_ms
        return AppendResult(base_offset, last_offset, answered_ms, self.log_start_offset, False)

    # Leader epochs.

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Record a new leader epoch, even if nothing is written in it: readers query its end offset (KIP-320)."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the newest epoch up to the given one and its end offset, (-1, -1) if unknown (KIP-101)."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Transactions and producers.

    def aborted_transactions(self) -> list[AbortedEntry]:
        """Return the whole index of aborted transactions, in the order of their markers."""
        return [entry for segment in self.segments for entry in segment.transaction_index.entries]

    def expire_producers(self, now_ms: int, producer_expiration_ms: int | None = None) -> list[int]:
        """Remove expired producers, except those with an open transaction; return their ids."""
        limit_ms = self._producer_expiration_ms if producer_expiration_ms is None else producer_expiration_ms
        return self.producer_state.expire(now_ms, limit_ms)

    # Compacting.

    def compact(self, now_ms: int) -> CompactionResult | None:
        """Compact the log if `plan_cleaning` has a plan, and return the result; there must be no concurrent reader.

        Raises `DamageError` for a damaged batch, and KAFKA_STORAGE_ERROR if the disk fails: the log then
        has to be opened again, which finishes a decided swap.
        """
        plan = plan_cleaning(self, now_ms)
        if plan is None:
            return None
        try:
            return Cleaner(self, plan, now_ms).run()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic_partition} was not compacted: {error}; "
                f"check the disk of folder {self.folder}, then open the log again",
            ) from error

    # Durability.

    def sync(self) -> None:
        if self.has_unsynced_names:
            self.sync_names()
        self.segments.active.sync()
        self.unsynced_bytes = 0

    def take_unsynced(self) -> File:
        """Return the file whose sync makes everything appended so far durable, if its name is.

        `unsynced_bytes` is 0 from now on: the caller syncs the file, and does not go on if that fails.
        """
        self.unsynced_bytes = 0
        return self.segments.active.file

    def closing_steps(self, now_ms: int) -> Iterator[Syncs]:
        """Sync everything, and write a snapshot at the log end offset, so that an open of the files replays nothing.

        Yield what has to be synced before each next step (see `run_steps`).
        """
        self.producer_state.expire(now_ms, self._producer_expiration_ms)
        if self.segments.size_bytes and (self.unsynced_bytes or self.log_end_offset not in self.snapshots.offsets):
            yield from self.snapshot_steps()
            for offset in self.stray_snapshots():
                self.snapshots.delete(offset)

    def close(self, now_ms: int) -> None:
        run_steps(self.storage, self.closing_steps(now_ms))
        self.release()

    def release(self) -> None:
        """Close the files as they are; the next open recovers the log, as after a crash."""
        for segment in self.segments:
            segment.close()
