"""What the sink's cluster reads: output topics, one place in each of many partitions, and the records of a few keys."""

import logging
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.records.batch import read_records
from broker_core.records.compression import Compression
from broker_core.records.control import ControlType
from broker_core.records.header import HEADER_SIZE, BatchHeader
from broker_core.records.varint import read_varint
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition, next_sequence
from spark_eos.client import leaders, metadata
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.fetch import FetchedChunk, OffsetsGoneError, RangeFetch, fetch_once
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import FRESH_ENOUGH_MS
from spark_eos.client.offset_lookup import STALE_LEADER, PartitionPlace, places_of
from spark_eos.client.producer_scan import ActiveProducer, ProducerScan
from spark_eos.errors import BrokerError, TopicError, UnansweredError, UnsupportedError
from spark_eos.options.source import FetchLimits
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol.answers import BatchTrace, CommittedView, KeyedRecord, LostRange

logger = logging.getLogger(__name__)

# If nothing is visible yet, the response shows that and need not be delayed.
_LOOK: Final = FetchLimits(max_bytes=8 << 20, partition_max_bytes=1 << 16, max_wait_ms=1)
# A record's fields before its key, and the key of a decision: prefixes have up to 200 bytes, names may be long.
_HEAD_BYTES: Final = 1024
_GZIP_WINDOW: Final = 31


class ClusterReads:
    """The reads of a cluster that need no more than a client."""

    client: KafkaClient

    def leaderless_partitions(self, topics: Collection[str], max_age_ms: int = 1_000) -> Mapping[str, Collection[int]]:
        return leaders.leaderless_partitions(self.client, topics, max_age_ms)

    def replaced_topics(
        self, written: Mapping[str, Collection[UUID]], transactional_ids: Collection[str]
    ) -> Collection[str]:
        """Return the topics that were deleted and created again after tasks had written to those with the given ids.

        A broker that lags behind may show an earlier topic of the same name, so a difference must be seen again.
        """
        deadline = self.client.deadline(metadata.MISSING_TOPIC_GRACE_SECONDS * 1000)
        found = self._topics_near(written, transactional_ids)
        attempt = 0
        while True:
            others = [
                name
                for name, ids in written.items()
                if metadata.problem_with(found.get(name), False) or set(ids) != {found[name].topic_id}
            ]
            if not others or (attempt and not self.client.back_off(attempt, deadline)):
                if unsaid := [name for name in others if found[name].topic_id is None]:
                    raise UnansweredError(
                        f"It is unknown whether topic '{unsaid[0]}' was made again since tasks wrote to it",
                        checked="Metadata, which had an id of the topic before and has none now",
                        remedy="Let all brokers, and all proxies before them, have the same version",
                    )
                return others
            found = self.client.require_topics(list(written), need_leaders=False)
            attempt += 1

    def _topics_near(
        self, topics: Collection[str], transactional_ids: Collection[str]
    ) -> Mapping[str, metadata.TopicMetadata]:
        """Describe topics by a coordinator of the ids, which are needed anyway: no other broker can delay a commit."""
        node_id, *_ = self.client.find_coordinators(CoordinatorType.TRANSACTION, transactional_ids).values()
        try:
            response = self.client.send(node_id, metadata.metadata_request(topics))
        except UnansweredError:
            return {}
        return self.client.recent.note(metadata.topics_of(response), self.client.runtime.clock.monotonic())

    def lost_ranges(self, written: Collection[PreparedTransaction]) -> list[LostRange]:
        """Return what partitions do not have of open transactions; only leaders that were elected since are asked.

        A leader has what its epoch began with and all since. One that was cut off may answer with an earlier state, so
        what is missing must be missing for a while.
        """
        topics = {each.topic for transaction in written for each in transaction.ranges if each.leader_epoch >= 0}
        known = self.client.require_topics(topics, need_leaders=False, max_age_ms=FRESH_ENOUGH_MS) if topics else {}
        places = places_of(known.values())
        missing = [
            LostRange(transaction, each)
            for transaction in written
            for each in transaction.ranges
            if each.leader_epoch >= 0 and places.get(each.place, PartitionPlace()).leader_epoch != each.leader_epoch
        ]
        deadline = self.client.deadline(metadata.MISSING_TOPIC_GRACE_SECONDS * 1000)
        for attempt in self.client.attempts(deadline):
            if attempt:
                self.client.metadata(sorted({each.written.topic for each in missing}))
            producers = self._producers_of({each.written.place for each in missing})
            if producers is None:
                return []
            missing = [
                each for each in missing if not any(_is_whole(each, found) for found in producers[each.written.place])
            ]
            if not missing:
                break
        return missing

    def _producers_of(
        self, places: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[ActiveProducer]] | None:
        try:
            return ProducerScan(self.client, timeout_ms=metadata.ELECTION_MS).run(places)
        except UnsupportedError as error:
            logger.info("whether partitions with new leaders have lost records is unknown: %s", error)
            return None
        except BrokerError as error:
            if error.error_code not in STALE_LEADER:
                raise
            raise UnansweredError(error.happened, checked=error.checked, remedy=error.remedy) from error

    def views(self, offsets: Mapping[TopicPartition, int], wait_ms: int) -> dict[TopicPartition, CommittedView | None]:
        found: dict[TopicPartition, CommittedView | None] = {}
        monotonic = self.client.runtime.clock.monotonic
        until = monotonic() + wait_ms / 1000
        for attempt in self.client.attempts(until):
            wanted = {place: offset for place, offset in offsets.items() if place not in found}
            # After the first attempt, look up a leader that has moved.
            max_age_ms = FRESH_ENOUGH_MS if attempt == 0 else 0
            found |= self._look_once(wanted, max(1.0, (until - monotonic()) * 1000), max_age_ms)
            if len(found) == len(offsets):
                break
        return found

    def _look_once(
        self, offsets: Mapping[TopicPartition, int], wait_ms: float, max_age_ms: int
    ) -> dict[TopicPartition, CommittedView | None]:
        found: dict[TopicPartition, CommittedView | None] = {}
        places: dict[TopicPartition, PartitionPlace] = {}
        for topic in {place.topic for place in offsets}:
            try:
                known = self.client.require_topics(
                    [topic], need_leaders=False, max_age_ms=max_age_ms, timeout_ms=wait_ms
                )[topic]
            except UnansweredError:
                return {}
            except TopicError:
                found |= {place: None for place in offsets if place.topic == topic}
                continue
            # A topic keeps its partitions: a broker that lacks one has just started.
            places |= places_of([known])
        wanted = {place: (places[place], offset) for place, offset in offsets.items() if place in places}
        answers = fetch_once(self.client, wanted, IsolationLevel.READ_COMMITTED, _LOOK, wait_ms)
        for place, answer in answers.items():
            if isinstance(answer, FetchedChunk):
                if answer.batches or answer.last_stable_offset <= answer.position:
                    found[place] = _view(answer)
            elif answer == ErrorCode.OFFSET_OUT_OF_RANGE:
                found |= self._judge(place, *wanted[place], wait_ms)
        return found

    def _judge(
        self, topic_partition: TopicPartition, place: PartitionPlace, offset: int, wait_ms: float
    ) -> dict[TopicPartition, CommittedView | None]:
        """Distinguish records that are gone from a leader that has yet to catch up."""
        limits = replace(_LOOK, poll_timeout_ms=int(max(1.0, wait_ms)))
        fetch = RangeFetch(self.client, topic_partition, place, IsolationLevel.READ_COMMITTED, limits)
        try:
            chunk = next(fetch.chunks(offset, offset + 1), None)
        except (OffsetsGoneError, TopicError):
            return {topic_partition: None}
        except UnansweredError:
            return {}
        return {topic_partition: None if chunk is None else _view(chunk)}


def _is_whole(written: LostRange, producer: ActiveProducer) -> bool:
    """Return whether a log has a transaction from its first record to its last; what lies between cannot be lost."""
    return (*written.transaction.producer, written.written.first_offset, written.written.next_sequence) == (
        producer.producer_id,
        producer.producer_epoch,
        producer.first_offset,
        next_sequence(producer.last_sequence),
    )


def _view(chunk: FetchedChunk) -> CommittedView:
    traces = tuple(
        BatchTrace(h.base_offset, h.last_offset, ProducerIdentity(h.producer_id, h.producer_epoch))
        for _, h in chunk.batches
    )
    return CommittedView(chunk.last_stable_offset, traces, tuple(chunk.aborted))


class KeySearch:
    """The search of one partition for the records of a few keys, chunk by chunk in the order of offsets.

    The log is read uncommitted, up to its end, and its markers show what was committed: compaction removes no marker
    while a record of its transaction is left. So open transactions of other producers, behind which committed readers
    see nothing, do not block the search.

    If a batch has one record, as those of decisions do, only its key is decoded: many queries share a decision topic,
    and most of its records belong to others.
    """

    def __init__(self, is_wanted: Callable[[bytes, int], bool]) -> None:
        self._is_wanted = is_wanted
        self._committed: list[KeyedRecord] = []
        self._open: dict[int, list[KeyedRecord]] = {}

    def take(self, chunk: FetchedChunk) -> None:
        for position, header in chunk.batches:
            if header.is_control:
                self._end(chunk, position, header)
                continue
            records = list(self._wanted(chunk.data, position, header)) if header.record_count else []
            if not header.is_transactional:
                self._committed += records
            elif records:
                self._open.setdefault(header.producer_id, []).extend(records)

    def committed(self) -> list[KeyedRecord]:
        return sorted(self._committed, key=lambda record: record.offset)

    def unended(self) -> list[KeyedRecord]:
        return [each for records in self._open.values() for each in records]

    def _end(self, chunk: FetchedChunk, position: int, header: BatchHeader) -> None:
        marker = chunk.marker(position, header) if header.producer_id in self._open else None
        if marker is not None:
            ended = self._open.pop(header.producer_id)
            if marker.control_type is ControlType.COMMIT:
                self._committed += ended

    def _wanted(self, data: bytes | memoryview, position: int, header: BatchHeader) -> Iterator[KeyedRecord]:
        if header.record_count == 1:
            key = _only_key(data, position, header)
            if key is not None and not self._is_wanted(key, header.max_timestamp):
                return
        for record in read_records(data, position, header):
            if record.key is not None and self._is_wanted(record.key, record.timestamp_ms):
                yield KeyedRecord(record.offset, record.key, record.value)


def _only_key(data: bytes | memoryview, position: int, header: BatchHeader) -> bytes | None:
    """Return the key of a batch's only record, or None if that needs the whole record decoded."""
    section = memoryview(data)[position + HEADER_SIZE : position + header.size_bytes]
    try:
        if header.compression is Compression.GZIP:
            head = zlib.decompressobj(_GZIP_WINDOW).decompress(section, _HEAD_BYTES)
        elif header.compression is Compression.NONE:
            head = bytes(section[:_HEAD_BYTES])
        else:
            return None
        _, at = read_varint(head, 0)
        _, at = read_varint(head, at + 1)
        _, at = read_varint(head, at)
        size, at = read_varint(head, at)
    except (IndexError, ValueError, zlib.error):
        return None
    return head[at : at + size] if 0 <= size <= len(head) - at else None
