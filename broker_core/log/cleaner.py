"""Compaction: it keeps the newest record of each key, and removes aborted records and old markers and tombstones.

Theory. A pass reads the dirty range, which no pass has read yet, and remembers the newest offset of each key in it,
without aborted records. Then it copies everything below the end of that range, except the records that
the keys and the transaction index show to be dead. Offsets, sequences and the offset ranges of batches never change.

Two kinds of records must outlive the records they refer to. A *tombstone* has to be seen by readers of an older
value, a *marker* by readers of the data before it. The first pass that finds one alone sets on its batch
a delete horizon, `delete.retention.ms` from now; a pass after that time drops it (KIP-534).

Two kinds of batch stay even without records. The last batch of a producer that has not expired contains its epoch
and sequence, for a replay without a snapshot; so does its last marker if no data followed. And the last batch of
the range, since a reader reaches the end of the log only by reading past a batch.

Only whole segments are cleaned. The end of the dirty range is therefore the base of a segment: of the segment that has
the last stable offset, of the active one, or of the first whose records are younger than min.compaction.lag.ms.

The pass replaces one group of segments after the other, oldest first, each atomically (`segment_swap`), and only then
advances the checkpoint of the first dirty offset. Repeated after a crash, it has the same result.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from broker_core.config import TopicConfig
from broker_core.errors import DamageError, InvalidBatch
from broker_core.log.filtered_batches import RawRecord, empty_batch, rewrite, walk_records
from broker_core.log.indexes import AbortedEntry
from broker_core.log.segment import MAX_RELATIVE_OFFSET, Segment, indexed_timestamp
from broker_core.log.segment_swap import CLEANED_SUFFIX, decide_swap, discard_cleaned, finish_swap
from broker_core.log.state import LogState
from broker_core.ports import run_steps
from broker_core.records.batch import read_section
from broker_core.records.control import parse_end_txn_marker
from broker_core.records.header import BatchHeader, crc_matches


class CleaningPlan(NamedTuple):
    """The plan of one pass: it reads the keys of [first_dirty_offset, end_offset) and cleans everything below its end.

    The segments from `dirty_at` up to `end_at` contain the dirty range.
    """

    first_dirty_offset: int
    end_offset: int
    dirty_at: int
    end_at: int


def is_compacted(config: TopicConfig) -> bool:
    return "compact" in (policy.strip() for policy in config.cleanup_policy.split(","))


def plan_cleaning(state: LogState, now_ms: int) -> CleaningPlan | None:
    """Return the plan of a pass; None if nothing can be cleaned or too little is dirty."""
    if not is_compacted(state.config):
        return None
    plan = _cleanable(state, now_ms)
    segments = state.segments
    clean_bytes = sum(segments[at].size_bytes for at in range(plan.dirty_at))
    dirty_bytes = sum(segments[at].size_bytes for at in range(plan.dirty_at, plan.end_at))
    if dirty_bytes == 0:
        return None
    if dirty_bytes > state.config.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
        return plan
    return plan if _is_overdue(state, plan, now_ms) else None


def _cleanable(state: LogState, now_ms: int) -> CleaningPlan:
    segments, lag_ms = state.segments, state.config.min_compaction_lag_ms
    first_dirty = state.first_dirty_offset
    if not state.log_start_offset <= first_dirty <= state.log_end_offset:
        # The cleaned range was deleted since, or the log was emptied.
        first_dirty = state.log_start_offset
    dirty_at = end_at = segments.index_of(first_dirty)
    bound = min(state.last_stable_offset, segments.active.base_offset)
    while end_at + 1 < len(segments) and segments[end_at + 1].base_offset <= bound:
        if lag_ms > 0 and segments[end_at].largest_timestamp[0] > now_ms - lag_ms:
            break
        end_at += 1
    return CleaningPlan(first_dirty, segments[end_at].base_offset, dirty_at, end_at)


def _is_overdue(state: LogState, plan: CleaningPlan, now_ms: int) -> bool:
    """Return whether a dirty record is older than max.compaction.lag.ms (KIP-354)."""
    begun = (state.segments[at].rolling_since_ms for at in range(plan.dirty_at, plan.end_at))
    oldest_ms = min((since_ms for since_ms in begun if since_ms > 0), default=None)
    return oldest_ms is not None and oldest_ms < now_ms - state.config.max_compaction_lag_ms


def group_segments(state: LogState, end_at: int) -> list[list[Segment]]:
    """Return the segments below `end_at` in groups that fit into one segment even if nothing is removed."""
    groups: list[list[Segment]] = []
    for at in range(end_at):
        segment = state.segments[at]
        if groups and _fits(state, groups[-1], segment, state.segments.end_of(at, state.log_end_offset)):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(state: LogState, group: list[Segment], segment: Segment, end_offset: int) -> bool:
    config, together = state.config, [*group, segment]
    return (
        sum(each.size_bytes for each in together) <= config.largest_segment_bytes
        and sum(each.offset_index.size_bytes for each in together) <= config.segment_index_bytes
        and sum(each.time_index.size_bytes for each in together) <= config.segment_index_bytes
        and end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )


class CompactionResult(NamedTuple):
    """The range of offsets that was cleaned, and the bytes saved below its end."""

    first_dirty_offset: int
    end_offset: int
    bytes_before: int
    bytes_after: int


class CleanedTransactions:
    """The transactions of a pass: which data is aborted, and which markers are no longer needed.

    A marker must outlive the data before it: without it a reader would treat later data of an aborted producer as
    aborted, and a replay would find a transaction that never ends.
    """

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._by_producer: dict[int, list[AbortedEntry]] = {}
        self._by_marker: dict[int, AbortedEntry] = {}
        for entry in aborted:
            self._by_producer.setdefault(entry.producer_id, []).append(entry)
            self._by_marker[entry.last_offset] = entry
        # Producers with a batch of their current transaction that was kept, even an empty one.
        self._with_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        entries = self._by_producer.get(header.producer_id, [])
        # A producer's transactions do not overlap, so only the first that ends after the batch can contain it.
        at = bisect_left(entries, header.base_offset, key=attrgetter("last_offset"))
        return at < len(entries) and entries[at].first_offset <= header.base_offset

    def note_kept(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """Process a marker and return whether no data of its transaction stays before it."""
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return False
        return True

    def ended_by(self, marker_offset: int) -> AbortedEntry | None:
        return self._by_marker.get(marker_offset)


class Cleaner:
    """One compaction pass over one log."""

    def __init__(self, state: LogState, plan: CleaningPlan, now_ms: int) -> None:
        self._state = state
        self._plan = plan
        self._now_ms = now_ms
        self._horizon_ms = now_ms + state.config.delete_retention_ms
        self._newest: dict[bytes, int] = {}
        self._transactions = CleanedTransactions(
            entry
            for segment in state.segments
            for entry in segment.transaction_index.entries
            if entry.first_offset < plan.end_offset
        )
        self._producers = {entry.producer_id: entry for entry in state.producer_state.entries}

    def run(self) -> CompactionResult:
        """Clean all segments below the plan's end; raise `DamageError` if one of them is damaged.

        Groups of segments that are not done yet then stay unchanged.
        """
        state, plan = self._state, self._plan
        self._make_durable()
        self._map_keys()
        groups = group_segments(state, plan.end_at)
        bytes_before = sum(segment.size_bytes for group in groups for segment in group)
        for group in groups:
            self._clean(group)
        state.save_first_dirty(plan.end_offset)
        bytes_after = sum(segment.size_bytes for segment in islice(state.segments, len(groups)))
        return CompactionResult(plan.first_dirty_offset, plan.end_offset, bytes_before, bytes_after)

    def _make_durable(self) -> None:
        """Sync the log that the pass depends on, and delete the snapshots below the plan's end."""
        state = self._state
        # Which records may be dropped depends on later batches, so those must be durable.
        if state.has_unsynced_names:
            state.sync_names()
        state.segments.active.sync()
        state.unsynced_bytes = 0
        if not any(offset >= self._plan.end_offset for offset in state.snapshots.offsets):
            run_steps(state.storage, state.snapshot_steps())
        for offset in state.snapshots.offsets:
            # In a snapshot here a transaction may be open whose marker is removed; a replay from it would never end it.
            if offset < self._plan.end_offset:
                state.snapshots.delete(offset)
        state.storage.sync_folder(state.folder)

    # Reading.

    def _map_keys(self) -> None:
        plan, newest = self._plan, self._newest
        for segment in islice(self._state.segments, plan.dirty_at, plan.end_at):
            for header, buffer, at in _batches(segment):
                if header.is_control or header.last_offset < plan.first_dirty_offset:
                    continue
                if self._transactions.is_aborted(header):
                    continue
                for record in _read_raw(header, buffer, at)[1]:
                    offset = header.base_offset + record.offset_delta
                    if record.key is not None and offset >= plan.first_dirty_offset:
                        newest[record.key] = offset

    # Replacing.

    def _clean(self, group: list[Segment]) -> None:
        state, base_offset = self._state, group[0].base_offset
        discard_cleaned(state.storage, state.folder, base_offset)
        cleaned = Segment(state.storage, state.folder, base_offset, CLEANED_SUFFIX)
        try:
            is_changed = self._copy(group, cleaned) or len(group) > 1
            if is_changed:
                self._state.storage.sync_all(cleaned.finished())
                decide_swap(state.storage, state.folder, base_offset)
        except BaseException:
            cleaned.close()
            discard_cleaned(state.storage, state.folder, base_offset)
            raise
        cleaned.close()
        if not is_changed:
            discard_cleaned(state.storage, state.folder, base_offset)
            return
        for segment in group:
            segment.close()
        finish_swap(state.storage, state.folder, base_offset, [segment.base_offset for segment in group[1:]])
        final = Segment(state.storage, state.folder, base_offset)
        final.transaction_index.load()
        state.segments.replace(group, final)

    def _copy(self, group: list[Segment], cleaned: Segment) -> bool:
        """Write the records of the group that stay, and return whether anything was removed or changed."""
        interval_bytes, is_changed = self._state.config.index_interval_bytes, False
        for segment in group:
            for header, buffer, at in _batches(segment):
                original = buffer[at : at + header.size_bytes]
                filtered = self._filter_marker if header.is_control else self._filter_data
                data = filtered(header, original)
                if data is None:
                    is_changed = True
                    continue
                kept = BatchHeader.parse(data)
                is_changed = is_changed or kept.crc != header.crc
                cleaned.append(data, kept.last_offset, indexed_timestamp(kept), interval_bytes)
                aborted = self._transactions.ended_by(kept.base_offset) if kept.is_control else None
                if aborted is not None:
                    cleaned.transaction_index.append(aborted)
        return is_changed

    # Judging.

    def _filter_marker(self, header: BatchHeader, original: bytes) -> bytes | None:
        """Return the part of a control batch that stays, None if nothing does."""
        if header.record_count and not _ends_transaction(header, original):
            return original
        if not self._transactions.end(header) or self._must_stay(header):
            return original
        if header.record_count and not header.has_delete_horizon:
            section, records = _read_raw(header, original, 0)
            return rewrite(header, section, records, self._horizon_ms)
        return original if header.record_count and self._now_ms < header.base_timestamp else None

    def _filter_data(self, header: BatchHeader, original: bytes) -> bytes | None:
        section, kept = b"", []
        if header.record_count and not self._transactions.is_aborted(header):
            section, records = _read_raw(header, original, 0)
            kept = [record for record in records if self._is_kept(header, record)]
        if not kept and not self._must_stay(header):
            return None
        self._transactions.note_kept(header)
        if not kept:
            return empty_batch(header) if header.record_count else original
        needs_horizon = not header.has_delete_horizon and not all(record.has_value for record in kept)
        if len(kept) == header.record_count and not needs_horizon:
            return original
        return rewrite(header, section, kept, self._horizon_ms if needs_horizon else None)

    def _is_kept(self, header: BatchHeader, record: RawRecord) -> bool:
        if record.key is None or header.base_offset + record.offset_delta < self._newest.get(record.key, -1):
            return False
        return record.has_value or not header.has_delete_horizon or self._now_ms < header.base_timestamp

    def _must_stay(self, header: BatchHeader) -> bool:
        """Return whether the batch is needed even without records."""
        if header.next_offset == self._plan.end_offset:
            return True
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return False
        if producer.batches:
            return header.last_offset == producer.last_offset
        return header.is_control and header.producer_epoch == producer.producer_epoch


def _batches(segment: Segment) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """Yield every batch of the segment; raise `DamageError` for damage, which a new CRC would hide."""
    end = 0
    try:
        for position, header, buffer, at in segment.headers():
            if not crc_matches(buffer, at, header):
                break
            yield header, buffer, at
            end = position + header.size_bytes
    except InvalidBatch as error:
        raise DamageError(f"{segment!r} cannot be compacted: byte {end}: {error}") from error
    if end != segment.size_bytes:
        raise DamageError(
            f"{segment!r} cannot be compacted: the batch at byte {end} is cut short or fails its "
            "checksum; restore the partition or delete its records up to there"
        )


def _read_raw(header: BatchHeader, buffer: bytes, at: int) -> tuple[bytes, list[RawRecord]]:
    """Return the decompressed records of the batch, together and one by one."""
    try:
        section = bytes(read_section(buffer, at, header))
        return section, list(walk_records(section, header.record_count))
    except InvalidBatch as error:
        raise DamageError(
            f"the records of the batch at offset {header.base_offset} cannot be read: {error}; the checksum is right, "
            "so they were written like this; delete the records up to there"
        ) from error


def _ends_transaction(header: BatchHeader, original: bytes) -> bool:
    try:
        return parse_end_txn_marker(original, 0, header) is not None
    except InvalidBatch:
        # A marker of an unknown version had no effect; it is kept for newer brokers that can read it.
        return False
