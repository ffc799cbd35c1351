"""The bytes of an offset range `[start, end)` of one partition, fetched from its leader.

The end of a range is a *position*, not a record: the last offsets of a range can belong to markers, aborted
transactions or records that compaction removed. So the reader follows the batches' headers until the next offset
reaches the end. The result is raw log; a higher layer decides which batches are visible, with the list of aborted
transactions in the response.

One request runs ahead while the caller processes the previous response, and memory holds two responses. More is
impossible: where a request begins follows from the headers of the previous response, and a broker processes one request
of a connection at a time. More would not help either: half of a task's time is spent reading the socket, which no
request ahead saves, and the rest of the waiting is the round trip, which larger responses (`max.partition.fetch.bytes`)
make rarer. Ranges run in parallel: `minPartitions` and `maxRecordsPerPartition` make more of them.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse

from broker_core.errors import ErrorCode, InvalidBatch
from broker_core.records.control import EndTxnMarker, parse_end_txn_marker
from broker_core.records.header import BatchHeader, check_crcs, iter_headers
from broker_core.types import LONG_MAX, NO_LEADER_EPOCH, AbortedTransaction, IsolationLevel, TopicPartition
from spark_eos.client.error_table import code_name
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import Doubt, grouped, is_other_topic
from spark_eos.client.offset_lookup import (
    ANSWERED_LATER,
    LeaderEpochCheck,
    LogPoint,
    OffsetLookup,
    PartitionPlace,
    epoch_end_request,
    partition_error,
)
from spark_eos.client.response_decoders import AnyPartition, UncopiedFetchRequest
from spark_eos.client.response_reader import asked_part
from spark_eos.errors import BrokerError, EosKafkaError, UnansweredError, UnsupportedError
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import FetchLimits
from spark_eos.runtime import Pending

logger = logging.getLogger(__name__)
_FIRST_VERSION_WITH_ISOLATION: Final = 4
_LAST_VERSION_WITH_TOPIC_NAMES: Final = 12
_OTHER_INCARNATION: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
_RETRIED: Final = ANSWERED_LATER | _OTHER_INCARNATION
_ANSWER_GRACE_MS: Final = 5_000
# So that a full response leaves out no partition.
_PARTITIONS_AT_ONCE: Final = 64
_ANSWERED: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
_Wanted = Mapping[TopicPartition, tuple[PartitionPlace, int]]
RequestT = TypeVar("RequestT", bound=FetchRequest)


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """One response: whole batches from `position` on, and what the broker reported about the log."""

    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    aborted: list[AbortedTransaction]
    position: int
    next_position: int
    high_watermark: int
    last_stable_offset: int

    def marker(self, position: int, header: BatchHeader) -> EndTxnMarker | None:
        """Return the marker in a control batch; compaction keeps an emptied one for its producer's sequence."""
        return parse_end_txn_marker(self.data, position, header) if header.record_count else None


class Gone(Enum):
    """Why offsets cannot be read, or no longer contain what was planned."""

    BELOW_LOG_START = "the offset is below the log start offset"
    ABOVE_LOG_END = "the offset is above the log end offset"
    LOG_TRUNCATED = "a new leader truncated the log and may have other records at the same offsets"
    TOPIC_DELETED = "the topic no longer exists"
    TOPIC_RECREATED = "the topic was deleted and created again"


@dataclass(eq=False)
class OffsetsGoneError(Exception):
    """A `position` that cannot be read, and the current bounds of the log (None: there is no log).

    `cut_at` is set for a log that was truncated: from that offset on it contains other records than planned. It is None
    if the log has nothing of what is known of the one before.
    """

    reason: Gone
    position: int
    log_start_offset: int | None = None
    end_offset: int | None = None
    cut_at: int | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    pending: Pending
    message: UncopiedFetchRequest
    leader_id: int
    position: int
    deadline: float


class RangeFetch:
    """The fetches of one partition from a position to another; used by one task, for one range at a time."""

    def __init__(
        self,
        client: KafkaClient,
        topic_partition: TopicPartition,
        place: PartitionPlace,
        isolation: IsolationLevel,
        limits: FetchLimits,
        planned: LogPoint = LogPoint(),  # noqa: B008 (a tuple)
    ) -> None:
        self._client = client
        self._monotonic = client.runtime.clock.monotonic
        self._lookup = OffsetLookup(client)
        self._topic_partition = topic_partition
        self._topic_id: UUID | None = place.topic_id
        self._leader_id = place.leader_id
        self._leader_epoch = place.leader_epoch
        if place.leader_epoch > NO_LEADER_EPOCH:
            # A broker that is cut off from the others may name an earlier leader, whose log may end before the plan.
            self._leader_epoch = max(place.leader_epoch, planned.leader_epoch)
        self._epoch_check = LeaderEpochCheck(planned)
        self._isolation = isolation
        self._limits = limits
        self._deadline = 0.0
        self._missing, self._refused = Doubt(self._monotonic), Doubt(self._monotonic)
        # Why the last request has no answer.
        self._trouble = "it has no leader"
        # Whether the last answer had nothing because of an open transaction.
        self.is_hidden = False

    def chunks(self, start: int, end: int, *, until: int = LONG_MAX) -> Iterator[FetchedChunk]:
        """Yield the contents of the range, response by response, until the position reaches `end`.

        A response may go on behind the range: batches that begin at `until` or later are left out. Raises
        `OffsetsGoneError` if the position is not in the log, and `UnansweredError` if it does not advance within the
        poll timeout.
        """
        self._progress()
        position, attempt = start, 0
        request: _Request | None = None
        while position < end:
            request = request or self._start(position)
            answer = self._finish(request) if request else None
            request = None
            if answer is None:
                self.is_hidden = False
                self._wait_or_give_up(attempt, position, end, self._trouble)
                attempt += 1
                continue
            chunk = read_chunk(self._topic_partition, answer, position, self._isolation, self._limits.check_crcs, until)
            if chunk.next_position == position:
                committed = self._isolation is IsolationLevel.READ_COMMITTED
                bound = chunk.last_stable_offset if committed else chunk.high_watermark
                if bound >= end and self._is_hollow(position, end):
                    return
                self.is_hidden = committed and bound < end <= chunk.high_watermark
                self._wait_or_give_up(attempt, position, end, f"records can be read only up to {bound}")
                attempt += 1
                continue
            position, attempt = chunk.next_position, 0
            if chunk.batches:
                self._epoch_check.extend(chunk.batches[-1][1].partition_leader_epoch, position, self._leader_epoch)
            self._progress()
            if position < end:
                request = self._start(position)
                self._client.transport.poll(0)
            yield chunk
            self._progress()

    def _progress(self) -> None:
        self._deadline = self._monotonic() + self._limits.poll_timeout_ms / 1_000

    def _wait_or_give_up(self, attempt: int, position: int, end: int, reason: str) -> None:
        if self._client.back_off(attempt, self._deadline):
            return
        raise UnansweredError(
            f"Reading {self._topic_partition} made no progress at offset {position} (planned end {end}): {reason}",
            checked=f"Retried for {self._limits.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)",
            remedy="Check that the partition has a leader and that no broker was replaced by one that lags behind",
        )

    def _is_hollow(self, position: int, end: int) -> bool:
        """Prove that no record is left in [position, end).

        Compaction can remove all batches up to the last stable offset, where a committed reader then receives nothing
        forever. An empty response alone proves nothing, because slow tiered storage returns the same. But a fetch of
        uncommitted records returns the next batch that exists, and if that lies beyond the end, nothing was left out.
        """
        request = self._start(position, IsolationLevel.READ_UNCOMMITTED)
        answer = self._finish(request) if request else None
        if answer is None:
            return False
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        chunk = read_chunk(self._topic_partition, answer, position, uncommitted, self._limits.check_crcs, end)
        return not chunk.batches and chunk.next_position == end

    def _start(self, position: int, isolation: IsolationLevel | None = None) -> _Request | None:
        """Send a request; return None if there is currently no leader to send it to."""
        if self._leader_id < 0:
            self._find_leader(position)
        if self._leader_id < 0 or not self._leader_agrees(position):
            return None
        # The broker may delay a response for max_wait_ms even if the poll timeout is nearly over.
        deadline = max(self._deadline, self._client.deadline(self._limits.max_wait_ms + _ANSWER_GRACE_MS))
        place = PartitionPlace(self._topic_id, self._leader_id, self._leader_epoch)
        wanted = {self._topic_partition: (place, position)}
        isolation = self._isolation if isolation is None else isolation
        message = _request(UncopiedFetchRequest, wanted, isolation, self._limits)
        try:
            pending = self._client.start(self._leader_id, message, deadline)
        except UnansweredError as error:
            self._leader_id, self._trouble = -1, error.happened
            return None
        return _Request(pending, message, self._leader_id, position, deadline)

    def _finish(self, request: _Request) -> AnyPartition | None:
        """Wait for a response; return None if the request has to be sent again, possibly to another leader."""
        self._client.transport.wait([request.pending], request.deadline)
        try:
            response = self._client.outcome(request.pending, request.message, request.leader_id)
        except UnansweredError as error:
            self._leader_id, self._trouble = -1, error.happened
            return None
        tp = self._topic_partition
        partition = next(
            (
                each
                for topic in response.responses
                if (topic.topic or topic.topic_id) in (tp.topic, self._topic_id)
                for each in topic.partitions
                if each.partition_index == tp.partition
            ),
            None,
        )
        code = response.error_code if partition is None else partition.error_code
        if code == ErrorCode.NONE and partition is not None:
            self._refused.ends()
            return partition
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._judge_out_of_range(request.position)
            return None
        # A right can be taken away and given back, so a new refusal is not believed.
        is_doubted = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and self._refused.lasts()
        if code != ErrorCode.NONE and code not in _RETRIED and not is_doubted:
            raise partition_error(self._topic_partition, code, f"fetching from offset {request.position}")
        said = "left the partition out" if code == ErrorCode.NONE else f"answered {code_name(code)}"
        self._leader_id, self._trouble = -1, f"broker {request.leader_id} {said}"
        return None

    def _judge_out_of_range(self, position: int) -> None:
        """Distinguish records that are gone from a leader that has yet to catch up (a change of leaders, KIP-207)."""
        earliest = self._edge(EARLIEST, self._isolation)
        latest = self._edge(LATEST, IsolationLevel.READ_UNCOMMITTED)
        if earliest is None or latest is None:
            raise OffsetsGoneError(Gone.TOPIC_DELETED, position)
        if position < earliest:
            raise OffsetsGoneError(Gone.BELOW_LOG_START, position, earliest, latest)
        if position > latest:
            raise OffsetsGoneError(Gone.ABOVE_LOG_END, position, earliest, latest)

    def _edge(self, edge: int, isolation: IsolationLevel) -> int | None:
        """Look up an end of the log at the leader that has answered, first of all: other brokers may not know it."""
        tp = self._topic_partition
        place = PartitionPlace(self._topic_id, self._leader_id, self._leader_epoch)
        return OffsetLookup(self._client, {tp: place}).offsets({tp: edge}, isolation).get(tp)

    def _find_leader(self, position: int) -> None:
        tp = self._topic_partition
        place = answered = self._lookup.places([tp.topic]).get(tp)
        is_other = place is not None and is_other_topic(self._topic_id, place.topic_id)
        if place is None or is_other or place.leader_epoch < self._leader_epoch:
            # A broker that has just started, or is cut off, does not know the topic or its leader.
            found = self._lookup.at_all_brokers({tp: self._topic_id})
            place = found.get(tp)
            if tp not in found:
                self._trouble = "not every broker says whether the topic exists"
            elif place is None and not self._missing.lasts():
                raise OffsetsGoneError(Gone.TOPIC_DELETED if answered is None else Gone.TOPIC_RECREATED, position)
        if place is None:
            return
        self._missing.ends()
        if place.leader_epoch >= self._leader_epoch:
            self._leader_id, self._leader_epoch = place.leader_id, place.leader_epoch
        else:
            known = f"the leader of epoch {self._leader_epoch} is known"
            self._trouble = f"{known}, and brokers name the leader of epoch {place.leader_epoch}"

    def _leader_agrees(self, position: int) -> bool:
        """Check that a newer leader's log has what is known of the one before; return False if that has to wait.

        The fetch that follows names the same leader epoch, so it cannot read another log.
        """
        known = self._epoch_check.doubted_by(self._leader_epoch)
        if known is None:
            return True
        tp = self._topic_partition
        message = epoch_end_request({tp: (self._leader_epoch, known.leader_epoch)})
        timeout_ms, api = self._limits.max_wait_ms + _ANSWER_GRACE_MS, "OffsetForLeaderEpoch"
        try:
            response = self._client.send(self._leader_id, message, timeout_ms=timeout_ms)
            topic = asked_part(response.topics, lambda each: each.topic == tp.topic, api)
            answer = asked_part(topic.partitions, lambda each: each.partition == tp.partition, api)
        except UnsupportedError:
            # As in Java's consumer, logs are not compared then.
            self._epoch_check.agree(self._leader_epoch)
            return True
        except UnansweredError:
            self._leader_id = -1
            return False
        if answer.error_code in _RETRIED:
            self._leader_id = -1
            return False
        if answer.error_code != ErrorCode.NONE:
            raise partition_error(tp, answer.error_code, f"looking up where leader epoch {known.leader_epoch} ended")
        end_offset = answer.end_offset if answer.end_offset >= 0 else None
        if not known.survives(end_offset):
            self._epoch_check.forget()
            earliest, latest = (self._edge(edge, self._isolation) for edge in (EARLIEST, LATEST))
            raise OffsetsGoneError(Gone.LOG_TRUNCATED, position, earliest, latest, end_offset)
        self._epoch_check.agree(self._leader_epoch)
        return True


def read_chunk(
    topic_partition: TopicPartition,
    partition: AnyPartition,
    position: int,
    isolation: IsolationLevel,
    checks_crcs: bool,
    until: int = LONG_MAX,
) -> FetchedChunk:
    """Split a response into batches, each with its checksum: a damaged header could hide the records of any batch.

    Those that begin at `until` or later are left out, whatever is damaged there.
    """
    data = memoryview(partition.records or b"")
    try:
        batches = list(iter_headers(data))
        next_position = position
        while batches and batches[-1][1].base_offset >= until:
            batches.pop()
            next_position = max(position, until)
        if checks_crcs:
            check_crcs(data, batches)
    except InvalidBatch as error:
        raise BrokerError(
            f"{topic_partition} has data at offset {position} that is not a record batch: {error}",
            remedy="Message formats older than Kafka 0.11 are not supported; if the log is newer, it is corrupt",
        ) from error
    aborted = partition.aborted_transactions or () if isolation is IsolationLevel.READ_COMMITTED else ()
    return FetchedChunk(
        data=data,
        batches=batches,
        aborted=[AbortedTransaction(each.producer_id, each.first_offset) for each in aborted],
        position=position,
        next_position=max(next_position, batches[-1][1].next_offset) if batches else next_position,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
    )


def fetch_once(
    client: KafkaClient, wanted: _Wanted, isolation: IsolationLevel, limits: FetchLimits, timeout_ms: float
) -> dict[TopicPartition, FetchedChunk | int]:
    """Fetch from many partitions, each at one offset: return each leader's response, or its error code.

    A partition without a response, or with a damaged one, is left out. A response may be empty if nothing is visible
    yet.
    """
    by_leader = grouped((place.leader_id, (tp, (place, offset))) for tp, (place, offset) in wanted.items())
    by_leader.pop(-1, None)
    responses = client.send_all(
        [
            (leader, _request(FetchRequest, dict(some[at : at + _PARTITIONS_AT_ONCE]), isolation, limits))
            for leader, some in by_leader.items()
            for at in range(0, len(some), _PARTITIONS_AT_ONCE)
        ],
        timeout_ms=timeout_ms,
    )
    found: dict[TopicPartition, FetchedChunk | int] = {}
    for response in responses:
        if isinstance(response, EosKafkaError) and not isinstance(response, UnansweredError):
            raise response
        if not isinstance(response, EosKafkaError) and response.error_code == ErrorCode.NONE:
            found |= _answers(response, wanted, isolation)
    return found


def _request(kind: type[RequestT], wanted: _Wanted, isolation: IsolationLevel, limits: FetchLimits) -> RequestT:
    """Make a fetch outside of a session. Without the id of a topic it names topics, as old brokers do."""
    form = FetchRequest.FetchTopic
    # A broker that is no longer the leader, or does not know yet that it is, refuses the request (KIP-320).
    topics = grouped(
        (
            (tp.topic, place.topic_id),
            form.FetchPartition(
                partition=tp.partition,
                current_leader_epoch=place.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            ),
        )
        for tp, (place, offset) in wanted.items()
    )
    return kind(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(isolation),
        topics=[form(topic=name, topic_id=id_ or UUID(int=0), partitions=each) for (name, id_), each in topics.items()],
        min_version=_FIRST_VERSION_WITH_ISOLATION,
        max_version=None if all(id_ for _, id_ in topics) else _LAST_VERSION_WITH_TOPIC_NAMES,
    )


def _answers(
    response: FetchResponse, wanted: _Wanted, isolation: IsolationLevel
) -> dict[TopicPartition, FetchedChunk | int]:
    names = {known.topic_id: place.topic for place, (known, _) in wanted.items()}
    found: dict[TopicPartition, FetchedChunk | int] = {}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for each in topic.partitions:
            place = TopicPartition(name, each.partition_index)
            if place in wanted:
                offset, code = wanted[place][1], each.error_code
                if code not in _ANSWERED and code not in _RETRIED:
                    raise partition_error(place, code, f"fetching from offset {offset}")
                try:
                    found[place] = read_chunk(place, each, offset, isolation, True) if code == ErrorCode.NONE else code
                except BrokerError as error:
                    logger.warning("%s", error)
    return found
