"""Fetch the bytes of an offset range `[start, end)` of one partition, from whoever leads it.

Done is a *position*, not a record: the last offsets of a range can belong to markers, aborted transactions or
records that compaction removed, so the reader goes by the batches' headers until the next offset reaches the end.
What comes back is raw log; which batches may be seen is decided above, with the list of aborted transactions that
comes along. One request runs ahead while the caller works on the answer before; memory holds two answers.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from broker_core.errors import ErrorCode
from broker_core.records.header import BatchHeader, InvalidBatch, iter_headers
from broker_core.types import NO_LEADER_EPOCH, AbortedTransaction, IsolationLevel, TopicPartition
from spark_eos.client.connection import KafkaClient
from spark_eos.client.lookup import STALE_LEADER, OffsetLookup, PartitionPlace, partition_error
from spark_eos.client.network import Pending
from spark_eos.errors import BrokerError, UnansweredError
from spark_eos.source_options import FetchLimits
from spark_eos.source_positions import EARLIEST, LATEST

_LAST_VERSION_WITH_TOPIC_NAMES: Final = 12
_OTHER_INCARNATION: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
# UNKNOWN_SERVER_ERROR: Kafka gives it for an index entry it cannot read now, and its own consumer asks again.
_RETRIED: Final = STALE_LEADER | _OTHER_INCARNATION | {ErrorCode.UNKNOWN_SERVER_ERROR}
_NO_SESSION_EPOCH: Final = -1
_ANSWER_GRACE_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """Hold one answer: whole batches from `position` on, and what the broker said about the log around them."""

    data: bytes
    batches: list[tuple[int, BatchHeader]]
    aborted: list[AbortedTransaction]
    position: int
    next_position: int
    high_watermark: int
    last_stable_offset: int


class Gone(Enum):
    """Say why offsets cannot be read any more."""

    BELOW_LOG_START = "the log starts later"
    ABOVE_LOG_END = "the log ends earlier"
    TOPIC_DELETED = "the topic does not exist any more"
    TOPIC_RECREATED = "the topic was deleted and created again"


class OffsetsGoneError(Exception):
    """Tell the reader that `position` cannot be read, and where the log begins now (None: there is no log)."""

    def __init__(self, reason: Gone, position: int, log_start_offset: int | None, high_watermark: int | None) -> None:
        super().__init__(reason, position, log_start_offset, high_watermark)
        self.reason = reason
        self.position = position
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


@dataclass(frozen=True, slots=True)
class _Request:
    pending: Pending
    message: Any
    leader_id: int
    position: int
    deadline: float


class RangeFetch:
    """Read one partition from a position to another; used by one task, for one range at a time."""

    def __init__(
        self,
        client: KafkaClient,
        topic_partition: TopicPartition,
        place: PartitionPlace,
        isolation: IsolationLevel,
        limits: FetchLimits,
    ) -> None:
        self._client = client
        self._lookup = OffsetLookup(client)
        self._topic_partition = topic_partition
        self._topic_id: UUID | None = place.topic_id
        self._leader_id = place.leader_id
        self._isolation = isolation
        self._limits = limits
        self._deadline = 0.0

    def chunks(self, start: int, end: int) -> Iterator[FetchedChunk]:
        """Give what the range holds, answer by answer, until the position reaches `end`.

        Raises `OffsetsGoneError` when the position is not in the log, `UnansweredError` when it does not move
        within the poll timeout.
        """
        self._progress()
        position, attempt = start, 0
        request: _Request | None = None
        while position < end:
            request = request or self._start(position)
            answer = self._finish(request) if request else None
            request = None
            if answer is None:
                self._wait_or_give_up(attempt, position, end, "the leader moved or did not answer")
                attempt += 1
                continue
            chunk = self._chunk(answer, position)
            if chunk.next_position == position:
                bound = self._readable_end(chunk)
                if bound >= end and self._is_hollow(position, end):
                    return
                self._wait_or_give_up(attempt, position, end, f"records can be read up to {bound} only")
                attempt += 1
                continue
            position, attempt = chunk.next_position, 0
            self._progress()
            if position < end:
                request = self._start(position)
                self._client.network.poll(0)
            yield chunk
            self._progress()

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._limits.poll_timeout_ms / 1_000

    def _readable_end(self, chunk: FetchedChunk) -> int:
        committed = self._isolation is IsolationLevel.READ_COMMITTED
        return chunk.last_stable_offset if committed else chunk.high_watermark

    def _wait_or_give_up(self, attempt: int, position: int, end: int, reason: str) -> None:
        if self._client.back_off(attempt, self._deadline):
            return
        raise UnansweredError(
            f"Reading {self._topic_partition} made no progress at offset {position} (planned end {end}): {reason}",
            checked=f"Asked again for {self._limits.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)",
            remedy="Check that the partition has a leader and that no broker was replaced by one that lags behind",
        )

    def _is_hollow(self, position: int, end: int) -> bool:
        """Prove that no record is left in [position, end).

        Compaction can remove all batches up to the last stable offset, where a committed reader is then given nothing
        for ever. An empty answer alone proves nothing, tiered storage that is slow gives the same; but whoever reads
        uncommitted records is given the next batch there is, and if that lies beyond the end, nothing was left out.
        """
        request = self._start(position, IsolationLevel.READ_UNCOMMITTED)
        answer = self._finish(request) if request else None
        batches = self._chunk(answer, position).batches if answer is not None else []
        return bool(batches) and batches[0][1].base_offset >= end

    def _start(self, position: int, isolation: IsolationLevel | None = None) -> _Request | None:
        """Send a request; None when there is nobody to send it to for now."""
        if self._leader_id < 0:
            self._find_leader(position)
        if self._leader_id < 0:
            return None
        # The broker may hold an answer back for max_wait_ms even when the poll timeout is nearly over.
        deadline = max(self._deadline, self._client.deadline(self._limits.max_wait_ms + _ANSWER_GRACE_MS))
        message = self._message(position, self._isolation if isolation is None else isolation)
        newest = _LAST_VERSION_WITH_TOPIC_NAMES if self._topic_id is None else None
        try:
            pending = self._client.start(self._leader_id, message, deadline, max_version=newest)
        except UnansweredError:
            self._leader_id = -1
            return None
        return _Request(pending, message, self._leader_id, position, deadline)

    def _message(self, position: int, isolation: IsolationLevel) -> Any:
        topic = FetchRequest.FetchTopic(
            topic=self._topic_partition.topic,
            topic_id=self._topic_id or UUID(int=0),
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=self._topic_partition.partition,
                    current_leader_epoch=NO_LEADER_EPOCH,
                    fetch_offset=position,
                    partition_max_bytes=self._limits.partition_max_bytes,
                )
            ],
        )
        return FetchRequest(
            max_wait_ms=self._limits.max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            isolation_level=int(isolation),
            session_id=0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[topic],
            forgotten_topics_data=[],
        )

    def _finish(self, request: _Request) -> Any | None:
        """Wait for an answer; None when it has to be asked for again, of another leader perhaps."""
        self._client.network.wait([request.pending], request.deadline)
        try:
            response = self._client.outcome(request.pending, request.message, request.leader_id)
        except UnansweredError:
            self._leader_id = -1
            return None
        partition = next((each for topic in response.responses for each in topic.partitions), None)
        code = response.error_code if partition is None else partition.error_code
        if code == ErrorCode.NONE and partition is not None:
            return partition
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._judge_out_of_range(request.position)
            return None
        if code != ErrorCode.NONE and code not in _RETRIED:
            raise partition_error(self._topic_partition, code, f"fetching from offset {request.position}")
        self._leader_id = -1
        return None

    def _judge_out_of_range(self, position: int) -> None:
        """Tell records that are gone from a leader that has yet to catch up (a change of leaders, KIP-207)."""
        tp = self._topic_partition
        earliest = self._lookup.offsets({tp: EARLIEST}, self._isolation).get(tp)
        latest = self._lookup.offsets({tp: LATEST}, IsolationLevel.READ_UNCOMMITTED).get(tp)
        if earliest is None or latest is None:
            raise OffsetsGoneError(Gone.TOPIC_DELETED, position, None, None)
        if position < earliest:
            raise OffsetsGoneError(Gone.BELOW_LOG_START, position, earliest, latest)
        if position > latest:
            raise OffsetsGoneError(Gone.ABOVE_LOG_END, position, earliest, latest)

    def _find_leader(self, position: int) -> None:
        places = self._lookup.places([self._topic_partition.topic])
        place = places.get(self._topic_partition)
        if place is None:
            raise OffsetsGoneError(Gone.TOPIC_DELETED, position, None, None)
        if self._topic_id is not None and place.topic_id is not None and place.topic_id != self._topic_id:
            raise OffsetsGoneError(Gone.TOPIC_RECREATED, position, None, None)
        self._leader_id = place.leader_id

    def _chunk(self, partition: Any, position: int) -> FetchedChunk:
        data = bytes(partition.records or b"")
        try:
            batches = list(iter_headers(data))
        except InvalidBatch as error:
            raise BrokerError(
                f"{self._topic_partition} holds something that is not a record batch at offset {position}: {error}",
                remedy="Message formats before Kafka 0.11 are not read; if the log is newer, it is damaged",
            ) from error
        aborted = partition.aborted_transactions or () if self._isolation is IsolationLevel.READ_COMMITTED else ()
        return FetchedChunk(
            data=data,
            batches=batches,
            aborted=[AbortedTransaction(each.producer_id, each.first_offset) for each in aborted],
            position=position,
            next_position=max(position, batches[-1][1].next_offset) if batches else position,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
        )
