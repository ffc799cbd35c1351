"""The sink's cluster on top of the client; for the meaning of most methods see `protocol.asks`."""

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.records.batch import read_records
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition, TransactionState, counted
from spark_eos.client import inspection, transactions
from spark_eos.client.aborted_filter import ends_in, visible_in
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.error_table import Api, failure
from spark_eos.client.fetch import FetchedChunk, Gone, OffsetsGoneError, RangeFetch
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import FRESH_ENOUGH_MS
from spark_eos.client.metadata import TopicMetadata
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace, places_of
from spark_eos.errors import TopicError, UnansweredError, UnsupportedError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.operator_commands import OperatorCommands
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import FetchLimits
from spark_eos.runtime import Runtime
from spark_eos.sink.cluster_reads import ClusterReads, KeySearch
from spark_eos.sink.decision_writer import DecisionWriter, offsets_in
from spark_eos.sink.naming import TaskId, id_pattern, is_same_query, parse_task_id, query_pattern
from spark_eos.sink.protocol.answers import (
    COMMITTED,
    Appended,
    CommittedOffset,
    DecisionWrite,
    Description,
    FoundRecords,
    KeyedRecord,
    ShortLogError,
    UnstableOffsetsError,
)

logger = logging.getLogger(__name__)
_LOOK: Final = FetchLimits(max_bytes=1 << 20, partition_max_bytes=1 << 16)
_SCAN: Final = replace(_LOOK, max_bytes=8 << 20, partition_max_bytes=4 << 20)
# The next response is requested while this one is read, and must not be waited for when nothing more is needed.
_MARKER_SCAN: Final = replace(_LOOK, max_wait_ms=1)
_NO_END: Final = 1 << 62
# One look at a topic takes several requests; a broker that is no longer the leader refuses them.
_SAME_LOOK_MS: Final = 1_000
# A session may run hundreds of queries in one process, each with one micro-batch at a time.
_MICRO_BATCHES_COUNTED: Final = 1_000
_STATES: Final = {state.label: state for state in TransactionState}


class KafkaCluster(ClusterReads):
    """The cluster behind one client; used by one process and thread."""

    def __init__(self, client: KafkaClient, decision_topic: str) -> None:
        self.client = client
        self._decision_topic = decision_topic
        self._decisions = DecisionWriter(client)
        # The brokers that did not respond in time when open transactions were last listed.
        self._slow_brokers: set[int] = set()
        # The partition counts of topics, as first counted for a micro-batch; the most recently used one is the last.
        self._counts: dict[Hashable, dict[str, int]] = {}

    @property
    def runtime(self) -> Runtime:
        return self.client.runtime

    def transaction_version(self) -> int:
        return self.client.transaction_version()

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        return transactions.init_producer_id(self.client, transactional_id, transaction_timeout_ms=timeout_ms)

    def own_some_of(self, transactional_ids: Iterator[str], count: int, timeout_ms: int) -> Sequence[OpenTransaction]:
        """Become the owner of at least one of these ids; give up one whose coordinator did not respond."""
        return transactions.own_some_of(self.client, transactional_ids, count, transaction_timeout_ms=timeout_ms)

    def describe_transactions(
        self, transactional_ids: Collection[str], wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        return _descriptions(inspection.describe_transactions(self.client, transactional_ids, timeout_ms=wait_ms))

    def describe_in_part(
        self, transactional_ids: Collection[str]
    ) -> tuple[Mapping[str, Description], Mapping[str, str]]:
        """Return what coordinators say within 10 seconds, and why the other ids are without a description."""
        unanswered: dict[str, str] = {}
        described = inspection.describe_transactions(self.client, transactional_ids, unanswered=unanswered)
        return _descriptions(described), unanswered

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        self.client.forget_coordinators(CoordinatorType.TRANSACTION, *transactional_ids)
        if group_id is not None:
            self.client.forget_coordinators(CoordinatorType.GROUP, group_id)

    def agree_on_coordinator(self, group_id: str) -> None:
        self.client.agree_on_coordinator(CoordinatorType.GROUP, group_id)

    def open_transactions(self, id_prefix: str, wait_ms: int | None = None) -> Sequence[str]:
        listed = self._listed([TransactionState.ONGOING], id_pattern(id_prefix), wait_ms)
        return [name for name in listed if name.startswith(id_prefix)]

    def used_ids(self, query: str, wait_ms: int | None = None) -> Mapping[TaskId, bool]:
        ends = {state.label: state in COMMITTED for state in (TransactionState.ONGOING, *COMMITTED)}
        listed = self._listed([TransactionState.ONGOING, *COMMITTED], query_pattern(query), wait_ms)
        found = [(parse_task_id(name), ends[state]) for name, state in listed.items() if state in ends]
        return {task: end for task, end in found if task is not None and is_same_query(task.query, query)}

    def _listed(self, states: Sequence[TransactionState], pattern: str, wait_ms: int | None) -> Mapping[str, str]:
        """Return the states of ids; older brokers ignore the pattern."""
        labels = [state.label for state in states]
        if wait_ms is None:
            listed = inspection.list_transactions(self.client, states=labels, id_pattern=pattern)
        else:
            listed = inspection.list_answered(
                self.client, self._slow_brokers, states=labels, id_pattern=pattern, timeout_ms=wait_ms
            )
        return {each.transactional_id: each.state for each in listed}

    def end_transactions(
        self, opened: Collection[OpenTransaction], commit: bool, wait_ms: int | None = None
    ) -> Mapping[str, EndAnswer]:
        """End transactions, all that may be ended; then raise if the principal may not end one of them."""
        if commit and wait_ms is not None:
            wait_ms = min(wait_ms, self.client.options.api_timeout_ms)
        answers = transactions.end_txns(self.client, opened, commit=commit, timeout_ms=wait_ms) if opened else {}
        for name, answer in answers.items():
            if answer.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise failure(Api.END_TXN, answer.code, f"transactional id {name!r}")
        return answers

    def unstable_ends(
        self, topic_partition: TopicPartition, offsets: Mapping[int, int], wait_ms: int
    ) -> Mapping[int, bool]:
        """Return the markers after offsets that committed readers cannot reach yet, in one pass.

        Only there: compaction, which may remove a marker, does not go beyond the last stable offset either.
        """
        limits = replace(_MARKER_SCAN, poll_timeout_ms=wait_ms)
        until = self.client.runtime.clock.monotonic() + wait_ms / 1000
        found: dict[int, bool] = {}
        with suppress(OffsetsGoneError, TopicError, UnansweredError):
            start = min(offsets.values())
            for chunk in self._chunks(topic_partition, start, _NO_END, IsolationLevel.READ_UNCOMMITTED, limits):
                ends = ends_in(chunk, {each: at for each, at in offsets.items() if each not in found})
                found |= {each: end for each, end in ends.items() if chunk.last_stable_offset <= offsets[each]}
                if len(found) == len(offsets) or chunk.last_stable_offset > max(offsets.values()):
                    return found
                if chunk.next_position >= chunk.high_watermark or self.client.runtime.clock.monotonic() > until:
                    return found
        return found

    def committed_offsets(self, group_id: str, wait_ms: int) -> Sequence[CommittedOffset]:
        """Read all offsets of a group.

        A request that names topics waits for pending offsets, even for the first one. Only if there is none, a request
        for everything returns what was committed under another decision topic.
        """
        places = self._places(self._decision_topic, wait_ms)
        try:
            found = fetch_offsets(self.client, group_id, places, require_stable=True, timeout_ms=wait_ms)
            if not found:
                found = fetch_offsets(self.client, group_id, None, require_stable=True, timeout_ms=wait_ms)
        except UnansweredError as error:
            if error.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            raise UnstableOffsetsError(
                f"Group {group_id!r} has an offset commit in a transaction that has not ended",
                checked=f"OffsetFetch for {wait_ms} ms",
                remedy="Restart the query, or the job with its jobId, after that transaction has timed out. If the "
                "pending offset is still there, the transaction hangs: "
                f"`{OperatorCommands.of(self.client.options).find_hanging_offsets()}` finds it and prints "
                "the command that ends it",
                error_code=error.error_code,
            ) from error
        return offsets_in(found)

    def read_records(self, topic_partition: TopicPartition, offset: int, count: int) -> Sequence[KeyedRecord]:
        """Read up to `count` records from the offset of a committed record, committed or not.

        A leader whose log ends before that offset is disconnected from the other brokers, or has yet to catch up. It
        and its successor are asked again until the API timeout.
        """
        deadline = self.client.deadline()
        for attempt in self.client.attempts(deadline):
            # One that does not have the records may be the leader no more.
            found = self._records_from(topic_partition, offset, count, 0 if attempt else _SAME_LOOK_MS)
            if found is not None:
                return found
        raise ShortLogError(
            f"The leader of {topic_partition} does not have offset {offset}, which was committed",
            checked=f"ListOffsets and Fetch, {counted(attempt + 1, 'time')}: the leader's log ends before that offset",
            remedy="The response probably comes from a broker that is disconnected from the others. Restart the "
            "query, or the job with its jobId, when that broker is back or stopped; restarting is safe",
        )

    def _records_from(
        self, topic_partition: TopicPartition, offset: int, count: int, max_age_ms: int
    ) -> list[KeyedRecord] | None:
        last = self._ends([topic_partition], LATEST, max_age_ms=max_age_ms)[topic_partition]
        if last <= offset:
            return None
        found: list[KeyedRecord] = []
        try:
            for chunk in self._chunks(topic_partition, offset, last, IsolationLevel.READ_UNCOMMITTED, _SCAN):
                found += [record for record in _records(chunk) if record.offset >= offset]
                if len(found) >= count:
                    break
        except OffsetsGoneError as error:
            return None if error.reason in (Gone.ABOVE_LOG_END, Gone.LOG_TRUNCATED) else found
        return found[:count]

    def last_offsets(self, group_id: str) -> Sequence[CommittedOffset]:
        found = fetch_offsets(self.client, group_id, None, require_stable=False)
        return offsets_in(found)

    def find_records(
        self, starts: Mapping[TopicPartition, int | None], is_wanted: Callable[[bytes, int], bool]
    ) -> FoundRecords:
        ends = self._ends(starts, LATEST)
        begins = self._ends([place for place, start in starts.items() if start is None and ends[place]], EARLIEST)
        searches = {place: KeySearch(is_wanted) for place in starts}
        for place, given in starts.items():
            start = begins.get(place, 0) if given is None else given
            if start >= ends[place]:
                continue
            try:
                for chunk in self._chunks(place, start, ends[place], IsolationLevel.READ_UNCOMMITTED, _SCAN):
                    searches[place].take(chunk)
            except OffsetsGoneError as error:
                raise _vanished(place, error.reason.value) from error
        return FoundRecords(
            tuple((place, record) for place, search in searches.items() for record in search.committed()),
            tuple((place, record) for place, search in searches.items() for record in search.unended()),
            ends,
        )

    def begins_with(self, topic_partition: TopicPartition, key: bytes) -> bool:
        start = self._ends([topic_partition], EARLIEST)[topic_partition]
        end = min(start + 1, self._ends([topic_partition], LATEST)[topic_partition])
        search = KeySearch(lambda found, _: found == key)
        try:
            for chunk in self._chunks(topic_partition, start, end, IsolationLevel.READ_UNCOMMITTED, _LOOK):
                search.take(chunk)
        except OffsetsGoneError:
            return False
        return bool(search.committed() or search.unended())

    def all_records(self, topic: str, *, waits: bool = True) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        """Read a topic; with `waits`, wait for open transactions, for as long as a response may take."""
        places = sorted(self._places(topic))
        starts = self._ends(places, EARLIEST)
        limits = replace(_SCAN, poll_timeout_ms=self.client.options.api_timeout_ms)
        # A decision that is searched may be behind another one that is open.
        high = self._ends(places, LATEST, IsolationLevel.READ_UNCOMMITTED) if waits else {}
        stable = self._ends(places, LATEST, IsolationLevel.READ_COMMITTED)
        ends = high or stable
        for place in places:
            if stable[place] < ends[place]:
                logger.warning(
                    "waiting, at most %g s, for the end of the transaction that is open at %s@%d",
                    limits.poll_timeout_ms / 1_000, place, stable[place],
                )  # fmt: skip
        try:
            for place in places:
                for chunk in self._chunks(place, starts[place], ends[place], IsolationLevel.READ_COMMITTED, limits):
                    for record in _records(chunk):
                        yield place, record
        except OffsetsGoneError as error:
            raise _vanished(topic, error.reason.value) from error

    def partition_count(self, topic: str) -> int:
        return self._described(topic, max_age_ms=FRESH_ENOUGH_MS).partition_count

    def known_counts(self, topics: Collection[str], micro_batch: Hashable) -> Mapping[str, int]:
        """Return the partition counts of topics, each as it was first known to a micro-batch."""
        counts = self._counts.pop(micro_batch, {})
        if unknown := [topic for topic in topics if topic not in counts]:
            found = self.client.require_topics(unknown, need_leaders=False)
            counts |= {name: topic.partition_count for name, topic in found.items()}
        self._counts[micro_batch] = counts
        for oldest in list(self._counts)[:-_MICRO_BATCHES_COUNTED]:
            del self._counts[oldest]
        return counts

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        for answer in self.client.topics_by_broker(topics).values():
            self.client.recent.note(answer or {}, self.client.runtime.clock.monotonic())
        # A topic keeps its partitions, so the response is completed by those.
        found = self.client.require_topics(topics, need_leaders=False)
        return {name: topic.partition_count for name, topic in found.items()}

    def leader_epochs(self, topics: Collection[str], since: float) -> Mapping[TopicPartition, int]:
        """Return the epochs of all partitions' leaders, as brokers have answered since then; a topic may be missing."""
        found = self.client.recent.since(topics, since) or self.client.metadata(sorted(topics))
        return {place: each.leader_epoch for place, each in places_of(found.values()).items()}

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        return self.client.batch_limits.batch_bytes(topic, wanted_bytes)

    def start_decision(self, write: DecisionWrite) -> Appended:
        with self._naming_the_topic():
            return self._decisions.start(write)

    def append_decision(self, write: DecisionWrite) -> Appended:
        with self._naming_the_topic():
            return self._decisions.append(write)

    def end_decision(self, write: DecisionWrite, commit: bool) -> EndAnswer:
        return self._decisions.end(write, commit)

    @contextmanager
    def _naming_the_topic(self) -> Iterator[None]:
        """Say of the decision topic, if that is what a request finds missing, what to do."""
        try:
            yield
        except TopicError as error:
            if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise TopicError(
                f"The decision topic '{self._decision_topic}' does not exist",
                checked=f"{error.checked}. A start checks that it exists; in one process once in ten minutes",
                remedy="If another topic is the right one, correct the name. If it was deleted, nothing that this run "
                "prepared becomes visible. Restart the query, or run the job again: the start creates the topic, if "
                "the principal may do so, and stops if rows may be visible whose decision is gone",
                error_code=error.error_code,
            ) from error

    def _chunks(
        self, topic_partition: TopicPartition, start: int, end: int, isolation: IsolationLevel, limits: FetchLimits
    ) -> Iterator[FetchedChunk]:
        place = self._places(topic_partition.topic, max_age_ms=_SAME_LOOK_MS).get(topic_partition)
        if place is None:
            raise _vanished(topic_partition, "its topic has fewer partitions")
        yield from RangeFetch(self.client, topic_partition, place, isolation, limits).chunks(start, end)

    def _places(
        self, topic: str, timeout_ms: int | None = None, max_age_ms: int = 0
    ) -> dict[TopicPartition, PartitionPlace]:
        """Return a topic's partitions, or raise; a response of `max_age_ms` is enough if leaders correct it.

        A broker that has just started may not know the topic yet. Treating that as an empty topic would treat every
        micro-batch as undecided.
        """
        return places_of([self._described(topic, timeout_ms, max_age_ms)])

    def _described(self, topic: str, timeout_ms: int | None = None, max_age_ms: int = 0) -> TopicMetadata:
        with self._naming_the_topic() if topic == self._decision_topic else nullcontext():
            return self.client.require_topics(
                [topic], need_leaders=False, timeout_ms=timeout_ms, max_age_ms=max_age_ms
            )[topic]

    def _ends(
        self,
        places: Collection[TopicPartition],
        end: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_age_ms: int = _SAME_LOOK_MS,
    ) -> dict[TopicPartition, int]:
        known: dict[TopicPartition, PartitionPlace] = {}
        for topic in {place.topic for place in places}:
            known |= self._places(topic, max_age_ms=max_age_ms)
        lookup = OffsetLookup(self.client, known)
        found = lookup.offsets(dict.fromkeys(places, end), isolation)
        ends = {place: offset for place, offset in found.items() if offset is not None}
        for place in places:
            if place not in ends:
                raise _vanished(place, "no broker knows its offsets")
        return ends


def _vanished(where: object, reason: str) -> TopicError:
    return TopicError(
        f"{where} cannot be read: {reason}",
        checked="Metadata, and the offsets from the partition's leader",
        remedy="Restart the query, or the job with its jobId, when all brokers are running. If the topic was deleted, "
        "its records are gone",
    )


def _descriptions(found: Mapping[str, inspection.TransactionDescription]) -> Mapping[str, Description]:
    return {
        each.transactional_id: Description(
            each.transactional_id,
            _state(each),
            ProducerIdentity(each.producer_id, each.producer_epoch),
            each.transaction_timeout_ms,
            each.start_time_ms,
            frozenset(each.topic_partitions),
        )
        for each in found.values()
        if each.exists
    }


def _state(description: inspection.TransactionDescription) -> TransactionState:
    try:
        return _STATES[description.state]
    except KeyError:
        raise UnsupportedError(
            f"Transactional id {description.transactional_id!r} is in state {description.state!r}, which this "
            "version of the package does not know",
            checked="DescribeTransactions",
            remedy="Upgrade this package to a version that supports these brokers",
        ) from None


def _records(chunk: FetchedChunk) -> Iterator[KeyedRecord]:
    """Return a chunk's records, except records of aborted transactions (read_uncommitted names none)."""
    for position, header in visible_in(chunk):
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        for record in read_records(chunk.data, position, header):
            yield KeyedRecord(record.offset, record.key, record.value, producer)
