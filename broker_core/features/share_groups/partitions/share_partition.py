"""One share partition on the leader of its partition: which records are in flight, for whom, and since when.

Records are acquired by members in order, from the start offset on. A change that ends an acquisition is persisted with
the share coordinator before it counts; acquisitions are not persisted, so that a new leader finds these records
available.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.errors import ErrorCode, KafkaError
from broker_core.features.share_groups.group_settings import ShareFetchSettings
from broker_core.features.share_groups.partitions.in_flight import InFlight, InFlightBatch, InFlightBatches, RecordState
from broker_core.features.share_groups.states.state import SharePartitionKey, ShareState, ShareWrite, StateBatch
from broker_core.types import TopicPartition

# Errors of the share coordinator, and the errors that members get instead.
_PERSIST_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
# After these the state in memory is not the current one: it is dropped, and read again.
FENCING = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


class Change(NamedTuple):
    """A changed state, with its range of offsets and a copy of it from before."""

    first_offset: int
    last_offset: int
    changed: InFlight
    before: InFlight


@dataclass(eq=False)
class SharePartition:
    """The in-flight records of one partition for one share group."""

    key: SharePartitionKey
    topic_partition: TopicPartition
    leader_epoch: int
    settings: Callable[[], ShareFetchSettings]
    persist: Callable[[SharePartitionKey, ShareWrite], None]
    state_epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    batches: InFlightBatches = field(default_factory=InFlightBatches)
    # Whether a record before the end may be available; a cache.
    may_have_available: bool = False

    def load(self, state: ShareState, start_offset: int) -> None:
        """Begin with a persisted state.

        Records between the persisted batches were acquired when the state was written, or never: they are available.
        """
        self.state_epoch = state.state_epoch
        self.start_offset = self.end_offset = next_offset = start_offset
        for each in state.batches:
            if each.first_offset > next_offset:
                self._add(next_offset, each.first_offset - 1, RecordState.AVAILABLE, 0)
            known = each.delivery_state in tuple(RecordState)
            # Kafka has a state for records on their way to a dead letter queue, which is not kept here.
            recorded = RecordState(each.delivery_state) if known else RecordState.ARCHIVED
            self._add(each.first_offset, each.last_offset, recorded, each.delivery_count)
            next_offset = each.last_offset + 1
        if len(self.batches):
            self.end_offset = self.batches.last_offset
            self.may_have_available = True
            self.move_start()

    def _add(self, first_offset: int, last_offset: int, state: RecordState, delivery_count: int) -> None:
        self.batches.add(InFlightBatch(first_offset, last_offset, InFlight(state, delivery_count)))

    @property
    def in_flight_count(self) -> int:
        """Return the number of offsets from the first record that is not done to the last that was acquired."""
        return self.end_offset - self.start_offset + 1 if len(self.batches) else 0

    @property
    def acquired_count(self) -> int:
        return sum(last - first + 1 for first, last, each in self.batches.parts() if each.state is RecordState.ACQUIRED)

    def next_fetch_offset(self) -> int:
        """Return the offset of the first available record, the one after all in-flight records if none is."""
        if not len(self.batches) or self.start_offset > self.batches.last_offset:
            self.may_have_available = False
            return self.end_offset
        if self.may_have_available:
            for first, _, each in self.batches.parts():
                if each.state is RecordState.AVAILABLE:
                    return first
            self.may_have_available = False
        return self.end_offset + 1

    @property
    def can_acquire(self) -> bool:
        """Return whether records may be acquired: released ones always, new ones up to the limit."""
        return (
            self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < self.settings().max_record_locks
        )

    def release_member(self, member_id: str) -> None:
        """Release all records that a member has acquired: it has closed its session, or its connection is lost."""
        self.commit(self._released(lambda each: each.member_id == member_id))

    def expire_locks(self, now_ms: int) -> int:
        """Release records that were not acknowledged in time; return how many."""
        changes = self._released(lambda each: each.lock_until_ms is not None and each.lock_until_ms <= now_ms)
        if changes:
            # If this cannot be persisted the locks are over all the same.
            with suppress(KafkaError):
                self._write(changes)
            self.applied(changes)
        return sum(change.last_offset - change.first_offset + 1 for change in changes)

    def _released(self, is_over: Callable[[InFlight], bool]) -> list[Change]:
        changes = []
        for batch in self.batches:
            is_acquired = batch.offsets is None and batch.whole.state is RecordState.ACQUIRED
            if is_acquired and is_over(batch.whole) and batch.first_offset < self.start_offset <= batch.last_offset:
                # The two parts end differently.
                batch.split()
            changes += [
                self.finish(first, last, each, RecordState.AVAILABLE)
                for first, last, each in batch.parts()
                if each.state is RecordState.ACQUIRED and is_over(each)
            ]
        return changes

    def next_lock_deadline_ms(self) -> int | None:
        return min(
            (each.lock_until_ms for _, _, each in self.batches.parts() if each.lock_until_ms is not None), default=None
        )

    def finish(self, first_offset: int, last_offset: int, each: InFlight, state: RecordState) -> Change:
        """End an acquisition; a record before the start offset is not delivered again."""
        before = each.copy()
        if state is RecordState.AVAILABLE and last_offset < self.start_offset:
            state = RecordState.ARCHIVED
        each.finish(state, self.settings().delivery_count_limit)
        return Change(first_offset, last_offset, each, before)

    def commit(self, changes: Sequence[Change]) -> None:
        """Persist changes that were applied, or undo them and raise the error."""
        try:
            if changes:
                self._write(changes)
        except KafkaError as error:
            undo(changes)
            self.may_have_available = True
            raise persist_error(error) from error
        self.applied(changes)

    def applied(self, changes: Iterable[Change]) -> None:
        if any(change.changed.state is RecordState.AVAILABLE for change in changes):
            self.may_have_available = True
        self.move_start()

    def _write(self, changes: Sequence[Change]) -> None:
        batches = tuple(
            StateBatch(change.first_offset, change.last_offset, change.changed.state, change.changed.delivery_count)
            for change in changes
        )
        self.persist(
            self.key,
            ShareWrite(self.state_epoch, self.leader_epoch, self.start_offset, batches, self._complete_count()),
        )

    def _complete_count(self) -> int:
        """Return the number of records from the start offset on that are done (KIP-1226)."""
        return sum(
            last - max(first, self.start_offset) + 1
            for first, last, each in self.batches.parts()
            if each.state.is_terminal and last >= self.start_offset
        )

    def move_start(self) -> None:
        """Advance the start offset to the first record that is not done, and forget what is before it."""
        last_offset = self.batches.last_offset if len(self.batches) else -1
        first_open = self.batches.drop_done()
        if first_open is None:
            return
        if not len(self.batches):
            self.start_offset = self.end_offset = last_offset + 1
        else:
            self.start_offset = max(self.start_offset, first_open)

    def follow_log_start(self, log_start_offset: int) -> None:
        """Archive available records that the log does not have any more, and begin after them."""
        if log_start_offset <= self.start_offset:
            return
        if not len(self.batches):
            self.start_offset = self.end_offset = log_start_offset
            return
        self.archive(self.start_offset, log_start_offset - 1, RecordState.AVAILABLE)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self.may_have_available = True

    def archive(self, first_offset: int, last_offset: int, state: RecordState) -> None:
        for batch in self.batches.overlapping(first_offset, last_offset):
            if batch.offsets is None:
                if batch.whole.state is not state:
                    continue
                if batch.is_within(first_offset, last_offset):
                    batch.whole.archive()
                    continue
            for offset, each in batch.split().items():
                if first_offset <= offset <= last_offset and each.state is state:
                    each.archive()


def undo(changes: Sequence[Change]) -> None:
    for change in reversed(changes):
        change.changed.restore(change.before)


def persist_error(error: KafkaError) -> KafkaError:
    """Return the error that members get for one of the share coordinator."""
    return KafkaError(_PERSIST_ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
