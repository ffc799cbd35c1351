"""The table of recovery: the conditions of a log's folder, what is kept, and the action for each.

The batches are authoritative, and the first invalid one ends the log. Everything else can be rebuilt
from them, so it is deleted if it may be wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.indexes import AbortedEntry
from broker_core.log.producer_state import ProducerState
from broker_core.log.segment import Segment
from broker_core.log.segment_swap import finish_swap, replaced_by_swap
from broker_core.log.state import LogState
from broker_core.ports import run_steps


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
    state.snapshots.delete_all()
    state.producer_state = ProducerState()
    state.leader_epochs.clear()
    run_steps(state.storage, state.leader_epochs.saving_steps())
    state.log_end_offset = state.log_start_offset
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


class _Action(NamedTuple):
    """What recovery does, in words and as a function."""

    text: str
    run: Callable[[LogState, RecoverySubject], None]


_NOTHING = _Action("go on", lambda *_: None)
_CREATE_SEGMENT = _Action("create an empty segment at the log start", _create_segment)
_DELETE_FILE = _Action("delete the file", lambda state, subject: state.storage.delete(f"{state.folder}/{subject.name}"))
_FINISH_SWAP = _Action("replace the segments it was made from", _finish_swap)
_DELETE_SEGMENT = _Action("delete the segment", _delete_segment)
_DELETE_SNAPSHOT = _Action(
    "delete the snapshot, try the next older one", lambda state, subject: state.snapshots.delete(subject.place)
)
_REPLAY = _Action("replay the batches behind it, then write a new one", lambda *_: None)
_USE_FIRST_SEGMENT = _Action("start the log at its first segment", _use_first_segment)
_START_EMPTY = _Action("empty the log and let it start there", _start_empty)
_REBUILD_INDEX = _Action("rewrite it from the segment's headers", _rebuild_index)
_REBUILD_TRANSACTION_INDEX = _Action("rewrite it by replaying the segment's producers", _rebuild_transaction_index)
_CUT_SEGMENT = _Action("cut the segment there", _cut_segment)
_REBUILD_EPOCHS = _Action("rewrite it from all headers", _rebuild_epochs)
_CUT_EPOCHS = _Action("forget them", lambda state, _: state.leader_epochs.truncate_end(state.log_end_offset))
# All batches count as dirty, which costs one more compaction pass.
_CLEAN_FROM_START = _Action(
    "restart compaction at the log start", lambda state, _: state.save_first_dirty(state.log_start_offset)
)

_Row = tuple[str, str, _Action, bool]


def _usual(text: str, kept: str, action: _Action) -> _Row:
    """Return the row of a condition that a crash or unfinished work leaves."""
    return text, kept, action, True


def _damage(text: str, kept: str, action: _Action) -> _Row:
    """Return the row of a condition that the operator should know."""
    return text, kept, action, False


class LogCondition(Enum):
    """The conditions of a log's folder that need a decision: what is kept of the log, and the action."""

    NO_SEGMENT = _usual("no segment", "nothing; the log start if there is one", _CREATE_SEGMENT)
    LEFTOVER_FILE = _usual("a file of unfinished work", "the log without it", _DELETE_FILE)
    UNFINISHED_SWAP = _usual(
        "a compacted segment that has not replaced its sources yet",
        "the log as compaction leaves it",
        _FINISH_SWAP,
    )
    ORPHAN_INDEX = _usual("an index without its log file", "the log without it", _DELETE_FILE)
    SEGMENT_BELOW_LOG_START = _usual(
        "a segment wholly below the log start", "the segments from the log start on", _DELETE_SEGMENT
    )
    LOG_START_DAMAGED = _damage("an invalid log start checkpoint", "every segment", _USE_FIRST_SEGMENT)
    LOG_START_AHEAD = _damage("a log start beyond the log end", "the deletion of deleted records", _START_EMPTY)
    SNAPSHOT_DAMAGED = _damage(
        "a snapshot with a wrong version, checksum or length", "all batches, older snapshots", _DELETE_SNAPSHOT
    )
    SNAPSHOT_AHEAD = _damage(
        "a snapshot at an offset where no batch begins", "all batches, older snapshots", _DELETE_SNAPSHOT
    )
    BATCHES_MISSING = _damage("batches that were durable are missing", "the batches that are there", _NOTHING)
    SNAPSHOT_BEHIND = _usual("a snapshot before the log end", "the snapshot and all whole batches behind it", _REPLAY)
    SNAPSHOT_STRAY = _usual(
        "a snapshot that is neither a segment's nor the newest", "all batches, newer snapshots", _DELETE_SNAPSHOT
    )
    NO_SNAPSHOT = _usual("no snapshot", "all whole batches", _REPLAY)
    INDEX_MISSING = _usual("a missing offset or time index", "all batches", _REBUILD_INDEX)
    INDEX_DAMAGED = _usual("an offset or time index that does not match its log file", "all batches", _REBUILD_INDEX)
    TRANSACTION_INDEX_DAMAGED = _damage(
        "a transaction index with impossible entries", "all batches", _REBUILD_TRANSACTION_INDEX
    )
    TORN_TAIL = _damage(
        "bytes that are not a whole batch with the right checksum and offset",
        "the batches before it",
        _CUT_SEGMENT,
    )
    SEGMENT_AFTER_DAMAGE = _damage("a segment behind the end of the log", "the segments before it", _DELETE_SEGMENT)
    HALF_CREATED_SEGMENT = _usual("a last segment without a batch", "the segment: appends go on in it", _NOTHING)
    MARKER_UNREADABLE = _damage(
        "a control batch with a valid checksum and invalid content",
        "the batch, without any effect on transactions",
        _NOTHING,
    )
    EPOCHS_MISSING = _usual("no leader epoch checkpoint beside a snapshot", "all batches", _REBUILD_EPOCHS)
    EPOCHS_DAMAGED = _damage("an invalid leader epoch checkpoint", "all batches", _REBUILD_EPOCHS)
    EPOCHS_AHEAD = _usual("leader epochs that begin behind the log end", "the epochs with batches", _CUT_EPOCHS)
    CLEANER_DAMAGED = _damage("an invalid compaction checkpoint", "all batches", _CLEAN_FROM_START)
    CLEANER_AHEAD = _usual("a compaction checkpoint beyond the log end", "all batches", _CLEAN_FROM_START)

    def __init__(self, text: str, kept: str, action: _Action, is_ordinary: bool) -> None:
        self.text = text
        self.kept = kept
        self.action = action
        self.is_ordinary = is_ordinary


class RecoveryFinding(NamedTuple):
    """One condition that recovery found."""

    condition: LogCondition
    subject: str

    def __str__(self) -> str:
        condition = self.condition
        return f"{self.subject}: {condition.text}; {condition.action.text}; kept: {condition.kept}"
