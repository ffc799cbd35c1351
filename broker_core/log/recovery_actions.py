"""The actions of `recovery_table` for the conditions that recovery finds in a log's folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.producer_state import ProducerState
from broker_core.log.recovery_table import LogCondition, LogRecoveryAction, RecoveryFinding
from broker_core.log.segment import Segment
from broker_core.log.segment_swap import finish_swap, replaced_by_swap
from broker_core.log.state import LogState
from broker_core.log.transaction_index import AbortedEntry


class RecoverySubject(NamedTuple):
    """The arguments of an action; `place` is a position in the segment or an offset, depending on the action."""

    name: str
    segment: Segment | None = None
    place: int = 0


class RecoveryActions:
    """The findings of one log's recovery, and the actions taken."""

    def __init__(self, state: LogState) -> None:
        self.findings: list[RecoveryFinding] = []
        self._state = state

    def handle(self, condition: LogCondition, name: str, segment: Segment | None = None, place: int = 0) -> None:
        """Record a condition and take the action in the table."""
        self.findings.append(RecoveryFinding(condition, name))
        ACTIONS[condition.action](self, RecoverySubject(name, segment, place))

    def create_segment(self, _: RecoverySubject) -> None:
        state = self._state
        state.storage.make_folder(state.folder)
        state.segments.add(Segment(state.storage, state.folder, state.log_start_offset))
        state.has_unsynced_names = True

    def delete_file(self, subject: RecoverySubject) -> None:
        self._state.storage.delete(f"{self._state.folder}/{subject.name}")

    def finish_swap(self, subject: RecoverySubject) -> None:
        """Finish the decided swap of a compaction at base offset `place`."""
        storage, folder = self._state.storage, self._state.folder
        finish_swap(storage, folder, subject.place, replaced_by_swap(storage, folder, subject.place))

    def delete_segment(self, subject: RecoverySubject) -> None:
        """Delete the first or last segment with its files."""
        segments = self._state.segments
        dropped = segments.drop_first() if subject.segment is segments[0] else segments.drop_last()
        assert dropped is subject.segment
        dropped.delete()

    def delete_snapshot(self, subject: RecoverySubject) -> None:
        self._state.snapshots.delete(subject.place)

    def use_first_segment(self, _: RecoverySubject) -> None:
        segments = self._state.segments
        self._state.log_start_offset = segments[0].base_offset if len(segments) > 0 else 0

    def start_empty(self, subject: RecoverySubject) -> None:
        """Delete all batches and begin at the log start offset."""
        state = self._state
        while len(state.segments):
            state.segments.drop_last().delete()
        state.snapshots.delete_above(-1)
        state.producer_state = ProducerState()
        state.leader_epochs.clear()
        state.leader_epochs.save()
        state.log_end_offset = state.high_watermark = state.log_start_offset
        self.create_segment(subject)

    def rebuild_index(self, subject: RecoverySubject) -> None:
        assert subject.segment is not None
        subject.segment.rebuild_indexes(self._state.config.index_interval_bytes)
        subject.segment.sync_indexes()

    def rebuild_transaction_index(self, subject: RecoverySubject) -> None:
        """Replay producers up to offset `place` and index the aborts whose marker is in the segment."""
        segment = subject.segment
        assert segment is not None
        segment.transaction_index.reset()
        shadow = self._shadow_before(segment.base_offset)
        first = shadow.segments.index_of(shadow.log_end_offset)
        for at in range(first, shadow.segments.index_of(segment.base_offset) + 1):
            replayed = shadow.segments[at]
            for aborted in _aborts(shadow, replayed, subject.place):
                if replayed is segment:
                    segment.transaction_index.append(aborted)
        segment.transaction_index.sync()

    def _shadow_before(self, base_offset: int) -> LogState:
        """Return a second view of the log with the producers of the newest snapshot that begins a segment.

        Its log end is the offset the replay has to begin at, `base_offset` or before.
        """
        state = self._state
        shadow = LogState(state.storage, state.folder, state.topic_partition, state.config)
        shadow.segments = state.segments
        shadow.log_end_offset = state.segments[0].base_offset
        bases = {segment.base_offset for segment in state.segments}
        for offset in reversed(state.snapshots.offsets):
            if offset <= base_offset and offset in bases:
                try:
                    shadow.producer_state = ProducerState(state.snapshots.read(offset))
                except DamageError:
                    continue
                shadow.log_end_offset = offset
                break
        return shadow

    def cut_segment(self, subject: RecoverySubject) -> None:
        assert subject.segment is not None
        subject.segment.truncate_to_position(subject.place, self._state.log_end_offset)

    def rebuild_epochs(self, subject: RecoverySubject) -> None:
        del subject
        state = self._state
        state.leader_epochs.clear()
        for segment in state.segments:
            try:
                for _, header, _, _ in segment.headers():
                    state.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            except InvalidBatch:
                return

    def cut_epochs(self, _: RecoverySubject) -> None:
        self._state.leader_epochs.truncate_end(self._state.log_end_offset)

    def clean_from_start(self, _: RecoverySubject) -> None:
        """Treat all batches as dirty, which costs one more compaction pass."""
        self._state.save_first_dirty(self._state.log_start_offset)


def _aborts(shadow: LogState, segment: Segment, end_offset: int) -> Iterator[AbortedEntry]:
    """Replay a segment up to `end_offset` and yield the entries of its transaction index."""
    # The bytes after that offset may be invalid: the tail has not been checked yet.
    with suppress(InvalidBatch):
        for _, header, buffer, place in segment.headers():
            if header.base_offset >= end_offset:
                return
            aborted = None
            # A marker that cannot be read had no effect when it was appended either.
            with suppress(InvalidBatch):
                aborted = shadow.apply_batch(header, header.base_offset, buffer, place)
            if aborted is not None:
                yield aborted


ACTIONS: Final[Mapping[LogRecoveryAction, Callable[[RecoveryActions, RecoverySubject], None]]] = {
    LogRecoveryAction.NOTHING: lambda *_: None,
    LogRecoveryAction.REPLAY: lambda *_: None,
    LogRecoveryAction.CREATE_SEGMENT: RecoveryActions.create_segment,
    LogRecoveryAction.DELETE_FILE: RecoveryActions.delete_file,
    LogRecoveryAction.FINISH_SWAP: RecoveryActions.finish_swap,
    LogRecoveryAction.DELETE_SEGMENT: RecoveryActions.delete_segment,
    LogRecoveryAction.DELETE_SNAPSHOT: RecoveryActions.delete_snapshot,
    LogRecoveryAction.USE_FIRST_SEGMENT: RecoveryActions.use_first_segment,
    LogRecoveryAction.START_EMPTY: RecoveryActions.start_empty,
    LogRecoveryAction.REBUILD_INDEX: RecoveryActions.rebuild_index,
    LogRecoveryAction.REBUILD_TRANSACTION_INDEX: RecoveryActions.rebuild_transaction_index,
    LogRecoveryAction.CUT_SEGMENT: RecoveryActions.cut_segment,
    LogRecoveryAction.REBUILD_EPOCHS: RecoveryActions.rebuild_epochs,
    LogRecoveryAction.CUT_EPOCHS: RecoveryActions.cut_epochs,
    LogRecoveryAction.CLEAN_FROM_START: RecoveryActions.clean_from_start,
}
