"""Reads of a log: bytes from an offset, aborted transactions, offsets by time, and journals record by record."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from broker_core.config import TopicConfig
from broker_core.errors import DamageError, ErrorCode, InvalidBatch, KafkaError
from broker_core.log.indexes import collect_aborted
from broker_core.log.segment import Segment, indexed_timestamp
from broker_core.log.state import LogState
from broker_core.ports import Storage
from broker_core.records.batch import Record, read_records
from broker_core.records.header import BatchHeader
from broker_core.types import NO_TIMESTAMP, AbortedTransaction, IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)


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


class ReadableLog(LogState):
    """The reads of a log; damage in bytes that recovery does not check is CORRUPT_MESSAGE."""

    def __init__(self, storage: Storage, folder: str, topic_partition: TopicPartition, config: TopicConfig) -> None:
        super().__init__(storage, folder, topic_partition, config)
        self._logged_error = ""

    def read(self, offset: int, max_bytes: int, isolation: IsolationLevel, *, min_one_batch: bool = True) -> ReadResult:
        """Return whole batches of one segment from `offset` on, at most `max_bytes` unless the first one is larger.

        Raises OFFSET_OUT_OF_RANGE if the offset is below the log start offset or above the log end offset,
        CORRUPT_MESSAGE if there is no valid batch, and KAFKA_STORAGE_ERROR if the disk fails.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition}: the log holds "
                f"{self.log_start_offset} to {self.log_end_offset}",
            )
        last_stable_offset = self.last_stable_offset
        bound = last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark
        aborted = None
        # Not with `_damage_reported`: it costs as much as all else if the partition has nothing to read.
        try:
            records, next_offset = self._read_below(offset, bound, max_bytes, min_one_batch)
            if isolation is IsolationLevel.READ_COMMITTED:
                aborted = []
                if records:
                    indexes = (segment.transaction_index for segment in self.segments.from_offset(offset))
                    aborted = collect_aborted(indexes, offset, next_offset)
        except (DamageError, InvalidBatch, OSError) as error:
            raise self._unreadable(error) from error
        return ReadResult(records, aborted, self.high_watermark, last_stable_offset, self.log_start_offset, next_offset)

    def _read_below(
        self, offset: int, bound: int, max_bytes: int, min_one_batch: bool
    ) -> tuple[bytes | memoryview, int]:
        if offset >= bound or (max_bytes <= 0 and not min_one_batch):
            return b"", offset
        for segment in self.segments.from_offset(offset):
            if segment.base_offset >= bound:
                break
            start = segment.position_of(offset)
            end = self._end_position(segment, bound)
            if start < end:
                return _read_segment(segment, offset, start, end, max_bytes, min_one_batch)
        return b"", offset

    def _end_position(self, segment: Segment, bound: int) -> int:
        if bound >= self.log_end_offset:
            return segment.size_bytes
        return segment.position_of(bound)

    def stable_bytes_from(self, offset: int, isolation: IsolationLevel, limit: int) -> int:
        """Return the number of bytes that a fetch could return now, counted up to `limit`."""
        bound = self.bound(isolation)
        found = 0
        try:
            if self.log_start_offset <= offset < bound:
                for segment in self.segments.from_offset(offset):
                    if segment.base_offset >= bound or found >= limit:
                        break
                    found += self._end_position(segment, bound) - segment.position_of(offset)
        except (DamageError, InvalidBatch, OSError) as error:
            raise self._unreadable(error) from error
        return min(found, limit)

    def goes_on_after_segment(self, offset: int, isolation: IsolationLevel) -> bool:
        """Return whether a reader may read beyond the segment of `offset`, so that more of it will not come."""
        bound = self.bound(isolation)
        return offset < bound and self.segments.index_of(offset) < self.segments.index_of(bound)

    def offset_for_timestamp(self, timestamp_ms: int, isolation: IsolationLevel) -> TimestampedOffset | None:
        """Return the first record whose timestamp is at or after `timestamp_ms`, None if the reader may not see one."""
        bound = self.bound(isolation)
        with self._damage_reported():
            for segment in self.segments:
                if segment.base_offset >= bound:
                    break
                if segment.largest_timestamp[0] < timestamp_ms:
                    continue
                for _, header, buffer, at in segment.headers(segment.position_for_time(timestamp_ms)):
                    for record in read_records(buffer, at, header) if header.max_timestamp >= timestamp_ms else ():
                        if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                            if record.offset >= bound:
                                return None
                            return TimestampedOffset(record.offset, record.timestamp_ms, header.partition_leader_epoch)
        return None

    def max_timestamp(self, isolation: IsolationLevel) -> TimestampedOffset | None:
        """Return the first record with the largest timestamp in the log, None if the reader may not see it."""
        with self._damage_reported():
            largest = max((self._largest_timestamp(segment) for segment in self.segments), default=NO_TIMESTAMP)
        return None if largest < 0 else self.offset_for_timestamp(largest, isolation)

    def _largest_timestamp(self, segment: Segment) -> int:
        """Return the largest timestamp of the segment's records at or above the log start, -1 if there is none."""
        start = self.log_start_offset
        largest, last_offset = segment.largest_timestamp
        # A batch behind the one with the log start is whole, so the others need not be read.
        if start <= segment.base_offset or segment.position_of(start) < segment.position_of(last_offset):
            return largest
        found = [NO_TIMESTAMP]
        for _, header, buffer, at in segment.headers(segment.position_of(start)):
            if header.base_offset >= start:
                found.append(indexed_timestamp(header))
            else:
                found += [each.timestamp_ms for each in read_records(buffer, at, header) if each.offset >= start]
        return max(found)

    @contextmanager
    def _damage_reported(self) -> Iterator[None]:
        try:
            yield
        except (DamageError, InvalidBatch, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> KafkaError:
        if isinstance(error, OSError):
            return self._storage_error("the log was not read", error)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}")

    def _storage_error(self, problem: str, error: OSError) -> KafkaError:
        """Return the error for the client; log it for the operator, once between two checks of the retention."""
        message = f"{self.topic_partition}: {problem}: {error}; check the disk of folder {self.folder}"
        if message != self._logged_error:
            self._logged_error = message
            logger.error("%s", message)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def read_journal(self, from_offset: int | None = None) -> Iterator[tuple[int, BatchHeader, Record]]:
        """Yield every record up to the log end, control records too, with its offset and its batch's header."""
        wanted = self.log_start_offset if from_offset is None else max(from_offset, self.log_start_offset)
        segments = self.segments
        for segment in islice(segments, segments.index_of(wanted), None):
            start = segment.position_of(wanted) if segment.base_offset < wanted else 0
            for _, header, buffer, at in segment.headers(start):
                if header.record_count == 0:
                    continue
                for record in read_records(buffer, at, header):
                    if record.offset >= wanted:
                        yield record.offset, header, record


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
