"""Do what the table of `decisions` says about what recovery found in a log's folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from broker_core.errors import DamageError
from broker_core.log.decisions import DECISIONS, Action, Finding, Found
from broker_core.log.producer_state import ProducerState
from broker_core.log.segment import Segment
from broker_core.log.state import LogState
from broker_core.log.swapping import finish_swap, replaced_by_swap
from broker_core.log.transaction_index import AbortedEntry
from broker_core.records.header import InvalidBatch


class Subject(NamedTuple):
    """Hold what a repair works on; `place` is a position in the segment or an offset, as the repair needs it."""

    name: str
    segment: Segment | None = None
    place: int = 0


class Repairs:
    """Write down what is found in one log and put it right."""

    def __init__(self, state: LogState) -> None:
        self.findings: list[Finding] = []
        self._state = state

    def note(self, found: Found, subject: str) -> None:
        """Write down what needs no repair beyond what recovery does anyway."""
        self.findings.append(Finding(found, subject))

    def meet(self, found: Found, subject: Subject) -> None:
        """Write down what is found and do what the table says."""
        self.note(found, subject.name)
        REPAIRS[DECISIONS[found].action](self, subject)

    def go_on(self, _: Subject) -> None:
        """Do nothing: what was found is as good as it can be."""

    def create_segment(self, _: Subject) -> None:
        """Begin an empty log at the log start."""
        state = self._state
        state.storage.make_folder(state.folder)
        state.segments.add(Segment(state.storage, state.folder, state.log_start_offset))
        state.unsynced_names = True

    def delete_file(self, subject: Subject) -> None:
        """Remove a file that belongs to nothing."""
        self._state.storage.delete(f"{self._state.folder}/{subject.name}")

    def finish_swap(self, subject: Subject) -> None:
        """Finish what compaction had decided upon at base offset `place`."""
        storage, folder = self._state.storage, self._state.folder
        finish_swap(storage, folder, subject.place, replaced_by_swap(storage, folder, subject.place))

    def delete_segment(self, subject: Subject) -> None:
        """Remove the first or last segment with its files."""
        segments = self._state.segments
        dropped = segments.drop_first() if subject.segment is segments[0] else segments.drop_last()
        assert dropped is subject.segment
        dropped.delete()

    def delete_snapshot(self, subject: Subject) -> None:
        """Remove a snapshot."""
        self._state.snapshots.delete(subject.place)

    def use_first_segment(self, _: Subject) -> None:
        """Let the log start where its first segment does."""
        segments = self._state.segments
        self._state.log_start_offset = segments[0].base_offset if len(segments) > 0 else 0

    def start_empty(self, subject: Subject) -> None:
        """Throw all batches away and begin at the log start."""
        state = self._state
        while len(state.segments):
            state.segments.drop_last().delete()
        state.snapshots.delete_above(-1)
        state.producers = ProducerState()
        state.leader_epochs.clear()
        state.leader_epochs.save()
        state.log_end_offset = state.high_watermark = state.log_start_offset
        self.create_segment(subject)

    def rebuild_index(self, subject: Subject) -> None:
        """Write a segment's offset and time index anew."""
        assert subject.segment is not None
        subject.segment.rebuild_indexes(self._state.config.index_interval_bytes)
        subject.segment.sync_indexes()

    def rebuild_transaction_index(self, subject: Subject) -> None:
        """Replay producers up to offset `place` and write down the aborts whose marker is in the segment."""
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
        shadow = LogState(
            state.storage,
            state.folder,
            state.topic_partition,
            state.config,
            state.segments,
            state.snapshots,
            state.leader_epochs,
            log_end_offset=state.segments[0].base_offset,
        )
        bases = {segment.base_offset for segment in state.segments}
        for offset in reversed(state.snapshots.offsets):
            if offset <= base_offset and offset in bases:
                try:
                    shadow.producers = ProducerState(state.snapshots.read(offset))
                except DamageError:
                    continue
                shadow.log_end_offset = offset
                break
        return shadow

    def cut_segment(self, subject: Subject) -> None:
        """Cut the log where it cannot be trusted any more."""
        assert subject.segment is not None
        subject.segment.truncate_to_position(subject.place, self._state.log_end_offset)

    def rebuild_epochs(self, subject: Subject) -> None:
        """Read all headers for the epochs they were written in."""
        del subject
        state = self._state
        state.leader_epochs.clear()
        for segment in state.segments:
            try:
                for _, header, _, _ in segment.headers():
                    state.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            except InvalidBatch:
                return

    def cut_epochs(self, _: Subject) -> None:
        """Forget the epochs of batches that are gone."""
        self._state.leader_epochs.truncate_end(self._state.log_end_offset)

    def clean_from_start(self, _: Subject) -> None:
        """Take all batches for dirty, which costs one more pass over them."""
        self._state.save_first_dirty(self._state.log_start_offset)


def _aborts(shadow: LogState, segment: Segment, end_offset: int) -> Iterator[AbortedEntry]:
    """Replay a segment up to `end_offset` and yield what its transaction index must hold."""
    # Behind that offset there may be anything: the tail has not been looked at yet.
    with suppress(InvalidBatch):
        for _, header, buffer, place in segment.headers():
            if header.base_offset >= end_offset:
                return
            aborted = None
            # A marker nobody can read had no effect when it was taken in either.
            with suppress(InvalidBatch):
                aborted = shadow.take_in(header, header.base_offset, buffer, place)
            if aborted is not None:
                yield aborted


REPAIRS: Final[Mapping[Action, Callable[[Repairs, Subject], None]]] = {
    Action.NOTHING: Repairs.go_on,
    Action.REPLAY: Repairs.go_on,
    Action.CREATE_SEGMENT: Repairs.create_segment,
    Action.DELETE_FILE: Repairs.delete_file,
    Action.FINISH_SWAP: Repairs.finish_swap,
    Action.DELETE_SEGMENT: Repairs.delete_segment,
    Action.DELETE_SNAPSHOT: Repairs.delete_snapshot,
    Action.USE_FIRST_SEGMENT: Repairs.use_first_segment,
    Action.START_EMPTY: Repairs.start_empty,
    Action.REBUILD_INDEX: Repairs.rebuild_index,
    Action.REBUILD_TRANSACTION_INDEX: Repairs.rebuild_transaction_index,
    Action.CUT_SEGMENT: Repairs.cut_segment,
    Action.REBUILD_EPOCHS: Repairs.rebuild_epochs,
    Action.CUT_EPOCHS: Repairs.cut_epochs,
    Action.CLEAN_FROM_START: Repairs.clean_from_start,
}
