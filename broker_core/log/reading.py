"""Reads of a log: bytes from an offset, aborted transactions, offsets by time, and journals record by record."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.indexes import collect_aborted
from broker_core.log.segment import Segment
from broker_core.log.state import LogState
from broker_core.records.batch import Record, read_records
from broker_core.records.header import BatchHeader
from broker_core.types import AbortedTransaction, IsolationLevel


class ReadResult(NamedTuple):
    """Whole batches and the log's offsets at that time; `next_offset` is where the reader continues.

    `aborted` is None for read_uncommitted: sent to such a reader it would hide data.
    """

    records: bytes | memoryview
    aborted: list[AbortedTransaction] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    next_offset: int


class TimestampedOffset(NamedTuple):
    """A record's offset, its timestamp and the leader epoch it was written in."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def read(state: LogState, offset: int, max_bytes: int, isolation: IsolationLevel, min_one_batch: bool) -> ReadResult:
    """Return whole batches from the one that holds `offset`, out of one segment, below the reader's bound."""
    if not state.log_start_offset <= offset <= state.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {state.topic_partition}: the log holds "
            f"{state.log_start_offset} to {state.log_end_offset}",
        )
    last_stable_offset = state.last_stable_offset
    bound = last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else state.high_watermark
    records, next_offset = _read_below(state, offset, bound, max_bytes, min_one_batch)
    aborted = None
    if isolation is IsolationLevel.READ_COMMITTED:
        aborted = []
        if records:
            indexes = (segment.transaction_index for segment in state.segments.from_offset(offset))
            aborted = collect_aborted(indexes, offset, next_offset)
    return ReadResult(records, aborted, state.high_watermark, last_stable_offset, state.log_start_offset, next_offset)


def _read_below(
    state: LogState, offset: int, bound: int, max_bytes: int, min_one_batch: bool
) -> tuple[bytes | memoryview, int]:
    if offset >= bound or (max_bytes <= 0 and not min_one_batch):
        return b"", offset
    for segment in state.segments.from_offset(offset):
        if segment.base_offset >= bound:
            break
        start = segment.position_of(offset)
        end = _end_position(state, segment, bound)
        if start < end:
            return _read_segment(segment, offset, start, end, max_bytes, min_one_batch)
    return b"", offset


def _end_position(state: LogState, segment: Segment, bound: int) -> int:
    if bound >= state.log_end_offset:
        return segment.size_bytes
    return segment.position_of(bound)


def _read_segment(
    segment: Segment, offset: int, start: int, end: int, max_bytes: int, min_one_batch: bool
) -> tuple[bytes | memoryview, int]:
    data = segment.read(start, min(max(max_bytes, 0), end - start))
    size_bytes, next_offset = segment.whole_batches(start, data)
    if size_bytes == 0:
        if not min_one_batch:
            return b"", offset
        data = segment.read_batch(start)
        size_bytes = len(data)
        next_offset = BatchHeader.parse(data).next_offset
    segment.remember(next_offset, start + size_bytes)
    # A slice of the bytes would be a copy.
    return data if size_bytes == len(data) else memoryview(data)[:size_bytes], next_offset


def bytes_from(state: LogState, offset: int, isolation: IsolationLevel, limit: int) -> int:
    """Return the number of bytes that a reader at `offset` could get now, counted up to `limit`."""
    bound = state.bound(isolation)
    found = 0
    if state.log_start_offset <= offset < bound:
        for segment in state.segments.from_offset(offset):
            if segment.base_offset >= bound or found >= limit:
                break
            found += _end_position(state, segment, bound) - segment.position_of(offset)
    return min(found, limit)


def offset_for_timestamp(state: LogState, timestamp_ms: int, isolation: IsolationLevel) -> TimestampedOffset | None:
    """Return the first record whose timestamp is at or after `timestamp_ms`, None if the reader may not see one."""
    bound = state.bound(isolation)
    for segment in state.segments:
        if segment.base_offset >= bound:
            break
        if segment.largest_timestamp[0] < timestamp_ms:
            continue
        for _, header, buffer, at in segment.headers(segment.position_for_time(timestamp_ms)):
            for record in read_records(buffer, at, header) if header.max_timestamp >= timestamp_ms else ():
                if record.timestamp_ms >= timestamp_ms and record.offset >= state.log_start_offset:
                    if record.offset >= bound:
                        return None
                    return TimestampedOffset(record.offset, record.timestamp_ms, header.partition_leader_epoch)
    return None


def max_timestamp(state: LogState, isolation: IsolationLevel) -> TimestampedOffset | None:
    """Return the first record with the largest timestamp in the log, None if the reader may not see it."""
    largest = max((segment.largest_timestamp[0] for segment in state.segments), default=-1)
    if largest < 0:
        return None
    return offset_for_timestamp(state, largest, isolation)


def read_journal(state: LogState, from_offset: int | None = None) -> Iterator[tuple[int, BatchHeader, Record]]:
    """Yield every record up to the log end, control records too, with its offset and its batch's header."""
    wanted = state.log_start_offset if from_offset is None else max(from_offset, state.log_start_offset)
    segments = state.segments
    for segment in islice(segments, segments.index_of(wanted), None):
        start = segment.position_of(wanted) if segment.base_offset < wanted else 0
        for _, header, buffer, at in segment.headers(start):
            if header.record_count == 0:
                continue
            for record in read_records(buffer, at, header):
                if record.offset >= wanted:
                    yield record.offset, header, record
