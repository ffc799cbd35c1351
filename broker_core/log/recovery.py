"""Recovery, which opens a log's folder after any crash and makes a consistent log of its valid part.

Theory. Three rules of writing make recovery short. (1) A segment is synced before its successor is created, so only
the last segment can have lost bytes. (2) A snapshot at offset S is written only after all batches below S, and the
their index entries, are durable; so only what follows S is in doubt, and nothing before it is read again.
(3) All other files can be rebuilt from the batches.

So recovery finds the newest readable snapshot whose offset is a batch boundary in the log, truncates every index to
it, and applies the batches from there, with checks of checksum and offset, as if they were just appended. The first bad
byte ends the log. Before S it only checks that each index exists and is plausible. The cost grows with the tail,
and a snapshot at the end makes the next tail short even if the process crashes repeatedly.

`recovery_table` lists the conditions that may be found and their actions.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.checkpoints import TEMPORARY_SUFFIX, read_checkpoint
from broker_core.log.producer_state import ProducerState, is_expired
from broker_core.log.recovery_table import LogCondition, RecoveryFinding, RecoverySubject
from broker_core.log.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, SegmentList, indexed_timestamp
from broker_core.log.segment_swap import CLEANED_SUFFIX, SWAP_SUFFIX
from broker_core.log.snapshots import snapshot_offset
from broker_core.log.state import CLEANER_FILE, LOG_START_FILE, LogState
from broker_core.ports import run_steps
from broker_core.records.header import BatchHeader, crc_matches

logger = logging.getLogger(__name__)

_SWAPPED_LOG: Final = LOG_SUFFIX + SWAP_SUFFIX
# An index with the `.swap` name without its log file belongs to an undecided swap.
_LEFTOVER_SUFFIXES: Final = (TEMPORARY_SUFFIX, ".deleted", CLEANED_SUFFIX, SWAP_SUFFIX)


class _Place(NamedTuple):
    """A batch boundary: its segment, position and offset."""

    at: int
    position: int
    offset: int
    has_snapshot: bool = True


def recover_log(state: LogState, now_ms: int, producer_expiration_ms: int) -> list[RecoveryFinding]:
    """Recover the log in the folder, in a new folder an empty log; return the findings, and log damage."""
    findings = Recovery(state, now_ms, producer_expiration_ms).run()
    for finding in findings:
        # What a crash usually leaves is not logged.
        if not finding.condition.is_ordinary:
            logger.warning("%s: recovery found damage: %s", state.topic_partition, finding)
    return findings


def lacks_log(names: Sequence[str]) -> bool:
    """Return whether a partition's folder with these files had batches and now has no log file at all."""
    had_batches = any((snapshot_offset(name) or 0) > 0 for name in names)
    return had_batches and not any(name.endswith(LOG_SUFFIX) for name in names)


class Recovery:
    """The recovery of one log's folder, from file names to batches."""

    def __init__(self, state: LogState, now_ms: int, producer_expiration_ms: int) -> None:
        self._findings: list[RecoveryFinding] = []
        self._state = state
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms

    def run(self) -> list[RecoveryFinding]:
        state = self._state
        self._sweep_and_open()
        self._find_log_start()
        if len(state.segments) == 0:
            self._handle(LogCondition.NO_SEGMENT, state.folder)
        state.snapshots.find()
        self._load_epochs()
        self.rebuild()
        if state.log_start_offset > state.log_end_offset:
            self._handle(LogCondition.LOG_START_AHEAD, LOG_START_FILE)
        for offset in state.stray_snapshots():
            self._handle(LogCondition.SNAPSHOT_STRAY, str(offset), place=offset)
        self._find_first_dirty()
        if state.segments.active.size_bytes == 0:
            # The file was created and may not be durable; no other check finds it.
            state.has_unsynced_names = True
        if any(finding.condition is not LogCondition.NO_SEGMENT for finding in self._findings):
            # Otherwise they would be rebuilt each time from the headers of the whole log.
            run_steps(state.storage, state.leader_epochs.saving_steps())
            # A file deleted here must not reappear after a crash, when the log has advanced.
            state.sync_names()
        return self._findings

    def _handle(self, condition: LogCondition, name: str, segment: Segment | None = None, place: int = 0) -> None:
        self._findings.append(RecoveryFinding(condition, name))
        condition.action.run(self._state, RecoverySubject(name, segment, place))

    def rebuild(self) -> None:
        """Rebuild producers, indexes, epochs and log end from the newest snapshot on."""
        state = self._state
        written_up_to = state.snapshots.offsets[-1] if state.snapshots.offsets else 0
        start = self._starting_place()
        for at in range(start.at):
            self._check_index(state.segments[at], whole=False)
            self._check_transaction_index(at, state.segments.end_of(at, start.offset))
        self._check_transaction_index(start.at, start.offset)
        state.log_end_offset = start.offset
        self._replay_tail(start)
        if state.log_end_offset < written_up_to:
            # Everything below a snapshot was durable before it was written.
            subject = f"the log ends at offset {state.log_end_offset}, a snapshot was written at {written_up_to}"
            self._handle(LogCondition.BATCHES_MISSING, subject)
        epochs = state.leader_epochs.starts
        if epochs and epochs[-1].start_offset > state.log_end_offset:
            self._handle(LogCondition.EPOCHS_AHEAD, str(epochs[-1]))
        # An epoch that begins at the log end has no batch, which is not damage; the next epoch replaces it.
        state.leader_epochs.truncate_end(state.log_end_offset)
        if state.log_end_offset > start.offset:
            self._handle(LogCondition.SNAPSHOT_BEHIND if start.has_snapshot else LogCondition.NO_SNAPSHOT, state.folder)
            run_steps(state.storage, state.snapshot_steps())

    # Finding the pieces.

    def _sweep_and_open(self) -> None:
        state = self._state
        for name in state.storage.list_folder(state.folder):
            stem = name.removesuffix(_SWAPPED_LOG)
            if stem != name and stem.isdecimal():
                self._handle(LogCondition.UNFINISHED_SWAP, name, place=int(stem))
        names = state.storage.list_folder(state.folder)
        bases = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
        for name in names:
            stem, dot, suffix = name.partition(".")
            if name.endswith(_LEFTOVER_SUFFIXES):
                self._handle(LogCondition.LEFTOVER_FILE, name)
            elif dot + suffix in INDEX_SUFFIXES and stem not in bases:
                self._handle(LogCondition.ORPHAN_INDEX, name)
        offsets = sorted(int(base) for base in bases if base.isdecimal())
        state.segments = SegmentList([Segment(state.storage, state.folder, offset) for offset in offsets])

    def _find_log_start(self) -> None:
        state = self._state
        first = state.segments[0].base_offset if len(state.segments) > 0 else 0
        state.log_start_offset = first
        try:
            # Ours is in the log's folder; Kafka has one for all its logs, which is read and not changed.
            rows = [
                *(read_checkpoint(state.storage, state.folder, LOG_START_FILE) or []),
                *(read_checkpoint(state.storage, "", LOG_START_FILE) or []),
            ]
            name = [state.topic_partition.topic, str(state.topic_partition.partition)]
            state.log_start_offset = max([first, *(int(row[-1]) for row in rows if row[:-1] == name)])
        except (DamageError, ValueError, IndexError):
            self._handle(LogCondition.LOG_START_DAMAGED, LOG_START_FILE)
        while len(state.segments) > 1 and state.segments[1].base_offset <= state.log_start_offset:
            self._handle(LogCondition.SEGMENT_BELOW_LOG_START, repr(state.segments[0]), state.segments[0])

    def _find_first_dirty(self) -> None:
        state = self._state
        try:
            rows = read_checkpoint(state.storage, state.folder, CLEANER_FILE)
            if rows:
                state.first_dirty_offset = int(rows[0][-1])
        except (DamageError, ValueError, IndexError):
            self._handle(LogCondition.CLEANER_DAMAGED, CLEANER_FILE)
        if state.first_dirty_offset > state.log_end_offset:
            # The log will have other batches at those offsets.
            self._handle(LogCondition.CLEANER_AHEAD, CLEANER_FILE)

    def _load_epochs(self) -> None:
        state = self._state
        try:
            if state.leader_epochs.load() or not state.snapshots.offsets:
                # Without a snapshot all batches are replayed, and their epochs with them.
                return
        except DamageError as error:
            self._handle(LogCondition.EPOCHS_DAMAGED, str(error))
        else:
            self._handle(LogCondition.EPOCHS_MISSING, state.folder)

    # The newest usable snapshot.

    def _starting_place(self) -> _Place:
        state = self._state
        for offset in reversed(state.snapshots.offsets):
            place = self._place_of(offset)
            if place is None:
                self._handle(LogCondition.SNAPSHOT_AHEAD, str(offset), place=offset)
                continue
            try:
                entries = state.snapshots.read(offset)
            except DamageError:
                self._handle(LogCondition.SNAPSHOT_DAMAGED, str(offset), place=offset)
                continue
            state.producer_state = ProducerState(
                entry for entry in entries if not is_expired(entry, self._now_ms, self._producer_expiration_ms)
            )
            return place
        state.producer_state = ProducerState()
        return _Place(0, 0, state.segments[0].base_offset, has_snapshot=False)

    def _place_of(self, offset: int) -> _Place | None:
        """Return the boundary at `offset`, None if it is outside of the log or inside a batch."""
        segments = self._state.segments
        at = segments.index_of(offset)
        segment = segments[at]
        if offset <= segment.base_offset:
            return _Place(at, 0, offset) if offset == segment.base_offset else None
        self._check_index(segment, whole=True)
        end, position = segment.base_offset, segment.offset_index.lookup(offset)
        # The log ends at a broken header; the replay of the tail will find it again.
        with suppress(InvalidBatch):
            for place, header, _, _ in segment.headers(position):
                if header.base_offset >= offset:
                    return _Place(at, place, offset)
                if header.next_offset > offset:
                    return None
                end, position = header.next_offset, place + header.size_bytes
        return _Place(at, position, offset) if end == offset else None

    def _check_index(self, segment: Segment, *, whole: bool) -> None:
        if not (segment.offset_index.file_exists() and segment.time_index.file_exists()):
            self._handle(LogCondition.INDEX_MISSING, repr(segment), segment)
        elif not segment.indexes_fit(whole=whole) or segment.lacks_entries(self._state.config.index_interval_bytes):
            self._handle(LogCondition.INDEX_DAMAGED, repr(segment), segment)

    def _check_transaction_index(self, at: int, end_offset: int) -> None:
        segment = self._state.segments[at]
        try:
            segment.transaction_index.load()
        except DamageError:
            self._handle(LogCondition.TRANSACTION_INDEX_DAMAGED, repr(segment), segment, end_offset)

    # Replaying the tail.

    def _replay_tail(self, start: _Place) -> None:
        state = self._state
        segments = state.segments
        for at in range(start.at, len(segments)):
            segment = segments[at]
            position = start.position if at == start.at else 0
            if at > start.at:
                if segment.base_offset < state.log_end_offset:
                    self._drop_from(at)
                    return
                state.log_end_offset = segment.base_offset
                # All its entries are after the snapshot, and are rebuilt.
                segment.transaction_index.reset()
            if position == 0:
                # All entries are removed, so it does not matter whether they can be read.
                segment.reset_indexes()
            segment.cut_indexes(position, state.log_end_offset)
            end = self._replay_segment(segment, position)
            if end < segment.size_bytes:
                self._handle(LogCondition.TORN_TAIL, f"{segment!r} from byte {end}", segment, place=end)
                self._drop_from(at + 1)
                return
            if segment is not segments.active:
                # The next snapshot requires its indexes to be durable too.
                state.storage.sync_all(segment.finished())
        if segments.active.size_bytes == 0 and len(segments) > 1:
            self._handle(LogCondition.HALF_CREATED_SEGMENT, repr(segments.active))

    def _replay_segment(self, segment: Segment, position: int) -> int:
        state = self._state
        interval_bytes = state.config.index_interval_bytes
        end = position
        # It stops at a malformed header: the bytes after `end` are the torn tail.
        with suppress(InvalidBatch):
            for place, header, buffer, at in segment.headers(position):
                is_in_order = header.base_offset >= state.log_end_offset and header.last_offset_delta >= 0
                if not (is_in_order and crc_matches(buffer, at, header)):
                    break
                segment.note_batch(
                    place, header.size_bytes, header.last_offset, indexed_timestamp(header), interval_bytes
                )
                self._replay_batch(segment, header, buffer, at)
                state.log_end_offset = header.next_offset
                end = place + header.size_bytes
        return end

    def _replay_batch(self, segment: Segment, header: BatchHeader, buffer: bytes, at: int) -> None:
        state = self._state
        state.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        try:
            aborted = state.apply_batch(header, header.base_offset, buffer, at)
        except InvalidBatch as error:
            self._handle(LogCondition.MARKER_UNREADABLE, str(error))
            return
        if aborted is not None:
            segment.transaction_index.append(aborted)

    def _drop_from(self, at: int) -> None:
        while len(self._state.segments) > at:
            segment = self._state.segments.active
            self._handle(LogCondition.SEGMENT_AFTER_DAMAGE, repr(segment), segment)
