"""The actions of `recovery_table` for the conditions that recovery finds in a log's folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.indexes import AbortedEntry
from broker_core.log.producer_state import ProducerState
from broker_core.log.recovery_table import LogRecoveryAction
from broker_core.log.segment import Segment
from broker_core.log.segment_swap import finish_swap, replaced_by_swap
from broker_core.log.state import LogState


class RecoverySubject(NamedTuple):
    """The arguments of an action; `place` is a position in the segment or an offset, depending on the action."""

    name: str
    segment: Segment | None = None
    place: int = 0


def _create_segment(state: LogState, _: RecoverySubject) -> None:
    state.storage.make_folder(state.folder)
    state.segments.add(Segment(state.storage, state.folder, state.log_start_offset))
    state.has_unsynced_names = True


def _finish_swap(state: LogState, subject: RecoverySubject) -> None:
    """Finish the decided swap of a compaction at base offset `place`."""
    replaced = replaced_by_swap(state.storage, state.folder, subject.place)
    finish_swap(state.storage, state.folder, subject.place, replaced)


def _delete_segment(state: LogState, subject: RecoverySubject) -> None:
    segments = state.segments
    dropped = segments.drop_first() if subject.segment is segments[0] else segments.drop_last()
    assert dropped is subject.segment
    dropped.delete()


def _use_first_segment(state: LogState, _: RecoverySubject) -> None:
    state.log_start_offset = state.segments[0].base_offset if len(state.segments) > 0 else 0


def _start_empty(state: LogState, subject: RecoverySubject) -> None:
    while len(state.segments):
        state.segments.drop_last().delete()
    state.snapshots.delete_above(-1)
    state.producer_state = ProducerState()
    state.leader_epochs.clear()
    state.leader_epochs.save()
    state.log_end_offset = state.high_watermark = state.log_start_offset
    _create_segment(state, subject)


def _rebuild_index(state: LogState, subject: RecoverySubject) -> None:
    assert subject.segment is not None
    subject.segment.rebuild_indexes(state.config.index_interval_bytes)
    state.storage.sync_all(subject.segment.written_indexes())


def _rebuild_transaction_index(state: LogState, subject: RecoverySubject) -> None:
    """Replay producers up to offset `place` and index the aborts whose marker is in the segment."""
    segment = subject.segment
    assert segment is not None
    segment.transaction_index.reset()
    shadow = _shadow_before(state, segment.base_offset)
    first = shadow.segments.index_of(shadow.log_end_offset)
    for at in range(first, shadow.segments.index_of(segment.base_offset) + 1):
        replayed = shadow.segments[at]
        for aborted in _aborts(shadow, replayed, subject.place):
            if replayed is segment:
                segment.transaction_index.append(aborted)
    state.storage.sync_all(segment.transaction_index.written())


def _shadow_before(state: LogState, base_offset: int) -> LogState:
    """Return a second view of the log with the producers of the newest snapshot that begins a segment.

    Its log end is the offset the replay has to begin at, `base_offset` or before.
    """
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


def _cut_segment(state: LogState, subject: RecoverySubject) -> None:
    assert subject.segment is not None
    subject.segment.truncate_to_position(subject.place, state.log_end_offset)


def _rebuild_epochs(state: LogState, _: RecoverySubject) -> None:
    state.leader_epochs.clear()
    # The headers end at the damage that the replay of the tail will find.
    with suppress(InvalidBatch):
        for segment in state.segments:
            for _position, header, _buffer, _at in segment.headers():
                state.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)


ACTIONS: Final[Mapping[LogRecoveryAction, Callable[[LogState, RecoverySubject], None]]] = {
    LogRecoveryAction.NOTHING: lambda *_: None,
    LogRecoveryAction.CREATE_SEGMENT: _create_segment,
    LogRecoveryAction.DELETE_FILE: lambda state, subject: state.storage.delete(f"{state.folder}/{subject.name}"),
    LogRecoveryAction.FINISH_SWAP: _finish_swap,
    LogRecoveryAction.DELETE_SEGMENT: _delete_segment,
    LogRecoveryAction.DELETE_SNAPSHOT: lambda state, subject: state.snapshots.delete(subject.place),
    LogRecoveryAction.REPLAY: lambda *_: None,
    LogRecoveryAction.USE_FIRST_SEGMENT: _use_first_segment,
    LogRecoveryAction.START_EMPTY: _start_empty,
    LogRecoveryAction.REBUILD_INDEX: _rebuild_index,
    LogRecoveryAction.REBUILD_TRANSACTION_INDEX: _rebuild_transaction_index,
    LogRecoveryAction.CUT_SEGMENT: _cut_segment,
    LogRecoveryAction.REBUILD_EPOCHS: _rebuild_epochs,
    LogRecoveryAction.CUT_EPOCHS: lambda state, _: state.leader_epochs.truncate_end(state.log_end_offset),
    # All batches count as dirty, which costs one more compaction pass.
    LogRecoveryAction.CLEAN_FROM_START: lambda state, _: state.save_first_dirty(state.log_start_offset),
}
