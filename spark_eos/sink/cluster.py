"""Answer what the sink asks of a cluster with the client room's requests; see `ports.Cluster` for the meaning."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker_core.errors import ErrorCode
from broker_core.records.batch import read_records
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition
from spark_eos.client import control, inspection
from spark_eos.client.connection import CoordinatorType, KafkaClient
from spark_eos.client.fetch import FetchedChunk, OffsetsGoneError, RangeFetch
from spark_eos.client.group_offsets import fetch_offsets
from spark_eos.client.leaders import FRESH_ENOUGH_MS
from spark_eos.client.lookup import OffsetLookup, PartitionPlace
from spark_eos.client.visibility import end_in, visible_in
from spark_eos.errors import EosKafkaError, TopicError, UnansweredError, UnsupportedError
from spark_eos.operator_commands import OperatorCommands
from spark_eos.sink.naming import id_pattern
from spark_eos.sink.ports import (
    BatchTrace,
    CommittedOffset,
    DecisionWrite,
    Description,
    EndAnswer,
    Ending,
    KeyedRecord,
    PartitionView,
    TransactionState,
    UnstableOffsetsError,
)
from spark_eos.source_options import FetchLimits
from spark_eos.source_positions import EARLIEST, LATEST

_LOOK: Final = FetchLimits(
    max_bytes=1 << 20, partition_max_bytes=1 << 16, min_bytes=1, max_wait_ms=500, poll_timeout_ms=60_000
)
_SCAN: Final = FetchLimits(
    max_bytes=8 << 20, partition_max_bytes=4 << 20, min_bytes=1, max_wait_ms=500, poll_timeout_ms=60_000
)
# The next answer is asked for while this one is read, and must not be waited for when nothing more is wanted.
_MARKER_SCAN: Final = replace(_LOOK, max_wait_ms=1)
_NO_END: Final = 1 << 62
# Every chunk of rows without keys asks; a partition that loses its leader in between is waited for.
_LEADERS_KNOWN_MS: Final = 5_000
_LEADERS_WAIT_MS: Final = 1_000
# What writes decisions with a client.
DecisionWriterOf = Callable[[KafkaClient], Callable[[DecisionWrite], EndAnswer]]


class KafkaCluster:
    """Be the cluster behind one client; lives in one process and thread."""

    def __init__(self, client: KafkaClient, decision_topic: str, decision_writer: DecisionWriterOf) -> None:
        self.client = client
        self._decision_topic = decision_topic
        self._write_decision = decision_writer(client)
        # Those that did not answer in time when open transactions were listed last.
        self._slow_brokers: set[int] = set()

    def transaction_version(self) -> int:
        """Give the finalized `transaction.version`."""
        return self.client.transaction_version()

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Become the owner of an id."""
        made = control.init_producer_id(self.client, transactional_id, transaction_timeout_ms=timeout_ms)
        return ProducerIdentity(made.producer_id, made.producer_epoch)

    def own_one_of(self, transactional_ids: Iterator[str], timeout_ms: int) -> tuple[str, ProducerIdentity]:
        """Become the owner of the first of these ids whose coordinator answers; one that did not is given up."""
        made = control.own_one_of(self.client, transactional_ids, transaction_timeout_ms=timeout_ms)
        return made.transactional_id, ProducerIdentity(made.producer_id, made.producer_epoch)

    def describe_transactions(
        self, transactional_ids: Collection[str], *, wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        """Describe ids; one the coordinator does not know is left out."""
        described = inspection.describe_transactions(self.client, transactional_ids, timeout_ms=wait_ms)
        return {
            each.transactional_id: Description(
                each.transactional_id,
                _state(each),
                ProducerIdentity(each.producer_id, each.producer_epoch),
                each.transaction_timeout_ms,
                each.start_time_ms,
                frozenset(each.topic_partitions),
            )
            for each in described.values()
            if each.exists
        }

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        """Look up coordinators again before they are asked next."""
        for each in transactional_ids:
            self.client.forget_coordinator(CoordinatorType.TRANSACTION, each)
        if group_id is not None:
            self.client.forget_coordinator(CoordinatorType.GROUP, group_id)

    def agree_on_coordinator(self, group_id: str) -> None:
        """Make sure that no broker names another coordinator of the group."""
        self.client.agree_on_coordinator(CoordinatorType.GROUP, group_id)

    def open_transactions(self, id_prefix: str, *, wait_ms: int | None = None) -> Sequence[str]:
        """List ids with an open transaction."""
        states, pattern = [TransactionState.ONGOING], id_pattern(id_prefix)
        if wait_ms is None:
            listed = inspection.list_transactions(self.client, states=states, id_pattern=pattern)
        else:
            listed = inspection.list_answered(
                self.client, self._slow_brokers, states=states, id_pattern=pattern, timeout_ms=wait_ms)
        names = dict.fromkeys(each.transactional_id for each in listed)
        return [name for name in names if name.startswith(id_prefix)]

    def end_transactions(self, endings: Sequence[Ending], *, wait_ms: int | None = None) -> Mapping[str, EndAnswer]:
        """End transactions in parallel."""
        answers: dict[str, EndAnswer] = {}
        for commit in (True, False):
            named = [_identity(each) for each in endings if each.commit is commit]
            if named:
                results = control.end_txns(self.client, named, commit=commit, timeout_ms=wait_ms)
                answers |= {name.transactional_id: end_answer(result) for name, result in results.items()}
        return answers

    def view(self, topic_partition: TopicPartition, offset: int, *, wait_ms: int) -> PartitionView | None:
        """Look at one place in a partition with read_committed."""
        limits = replace(_LOOK, poll_timeout_ms=wait_ms, max_wait_ms=min(_LOOK.max_wait_ms, wait_ms))
        try:
            chunks = self._chunks(topic_partition, offset, offset + 1, IsolationLevel.READ_COMMITTED, limits)
            chunk = next(chunks, None)
        except (OffsetsGoneError, TopicError):
            return None
        if chunk is None:
            return None
        traces = tuple(
            BatchTrace(h.base_offset, h.last_offset, ProducerIdentity(h.producer_id, h.producer_epoch), h.is_control)
            for _, h in chunk.batches
        )
        return PartitionView(chunk.last_stable_offset, traces, tuple(chunk.aborted))

    def unstable_end(
        self, topic_partition: TopicPartition, producer_id: int, offset: int, *, wait_ms: int
    ) -> bool | None:
        """Find the marker behind an offset that committed readers do not reach yet.

        Only there: compaction, which may remove a marker, does not get beyond the last stable offset either.
        """
        limits = replace(_MARKER_SCAN, poll_timeout_ms=wait_ms)
        until = time.monotonic() + wait_ms / 1000
        try:
            chunks = self._chunks(topic_partition, offset, _NO_END, IsolationLevel.READ_UNCOMMITTED, limits)
            for chunk in chunks:
                committed = end_in(chunk, producer_id, offset)
                if chunk.last_stable_offset > offset or committed is not None:
                    return committed if chunk.last_stable_offset <= offset else None
                if chunk.next_position >= chunk.high_watermark or time.monotonic() > until:
                    return None
        except (OffsetsGoneError, TopicError):
            pass
        return None

    def committed_offsets(self, group_id: str, *, wait_ms: int) -> Sequence[CommittedOffset]:
        """Read all offsets of a group.

        A request by name waits for an offset that is pending, also where it is the first. Only where there is none, a
        request for everything shows what was committed under another decision topic.
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
                f"Group {group_id!r} has an offset in a transaction that has not ended",
                checked=f"OffsetFetch for {wait_ms} ms",
                remedy="It ends when its transaction times out; start the query again then. If it is still there, the "
                "transaction hangs: "
                f"`{OperatorCommands.of(self.client.options).find_hanging_offsets()}` finds it and says how to end it",
                error_code=error.error_code,
            ) from error
        return [CommittedOffset(place, each.offset, each.metadata) for place, each in found.items()]

    def read_records(self, topic_partition: TopicPartition, offset: int, count: int) -> Sequence[KeyedRecord]:
        """Read up to `count` records from an offset on, committed or not."""
        last = self._ends([topic_partition], LATEST)[topic_partition]
        found: list[KeyedRecord] = []
        try:
            for chunk in self._chunks(topic_partition, offset, last, IsolationLevel.READ_UNCOMMITTED, _SCAN):
                found += [record for record in _records(chunk) if record.offset >= offset]
                if len(found) >= count:
                    break
        except OffsetsGoneError:
            return found
        return found[:count]

    def find_records(
        self, topic: str, is_wanted: Callable[[bytes], bool]
    ) -> Sequence[tuple[TopicPartition, KeyedRecord]]:
        """Scan the committed records of a topic for keys."""
        return [
            (place, record) for place, record in self.all_records(topic)
            if record.key is not None and is_wanted(record.key)
        ]

    def all_records(self, topic: str) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        """Scan the committed records of a topic."""
        places = sorted(self._places(topic))
        starts = self._ends(places, EARLIEST)
        # Up to the end as it is now, not up to the last stable offset: our decision may lie behind another's open one.
        ends = self._ends(places, LATEST)
        try:
            for place in places:
                for chunk in self._chunks(place, starts[place], ends[place], IsolationLevel.READ_COMMITTED, _SCAN):
                    for record in _records(chunk):
                        yield place, record
        except OffsetsGoneError as error:
            raise _vanished(topic, error.reason.value) from error

    def partition_count(self, topic: str) -> int:
        """Count a topic's partitions."""
        found = self.client.require_topics([topic], need_leaders=False, max_age_ms=FRESH_ENOUGH_MS)
        return found[topic].partition_count

    def leaderless_partitions(self, topic: str) -> Collection[int]:
        """Name a topic's partitions that had no leader a moment ago; none where that cannot be known soon."""
        try:
            found = self.client.require_topics(
                [topic], need_leaders=False, max_age_ms=_LEADERS_KNOWN_MS, timeout_ms=_LEADERS_WAIT_MS
            )
        except EosKafkaError:
            # The producer meets the same trouble, with more patience.
            return ()
        return [number for number, each in found[topic].partitions.items() if each.leader < 0]

    def write_decision(self, write: DecisionWrite) -> EndAnswer:
        """Append records, commit the offset of the first to a group, and end: one transaction."""
        return self._write_decision(write)

    def _chunks(
        self, topic_partition: TopicPartition, start: int, end: int, isolation: IsolationLevel, limits: FetchLimits
    ) -> Iterator[FetchedChunk]:
        place = self._places(topic_partition.topic).get(topic_partition)
        if place is None:
            raise _vanished(topic_partition, "its topic has fewer partitions")
        yield from RangeFetch(self.client, topic_partition, place, isolation, limits).chunks(start, end)

    def _places(self, topic: str, timeout_ms: int | None = None) -> dict[TopicPartition, PartitionPlace]:
        """Find a topic's partitions, or raise.

        A broker that has just started may not know the topic yet. To take that for an empty topic would be to take
        every micro-batch for undecided.
        """
        found = self.client.require_topics([topic], need_leaders=False, timeout_ms=timeout_ms)[topic]
        return {
            TopicPartition(topic, number): PartitionPlace(found.topic_id, each.leader, each.leader_epoch)
            for number, each in found.partitions.items()
        }

    def _ends(self, places: Collection[TopicPartition], end: int) -> dict[TopicPartition, int]:
        """Find where partitions begin or end, or raise."""
        found = OffsetLookup(self.client).offsets(dict.fromkeys(places, end), IsolationLevel.READ_UNCOMMITTED)
        ends = {place: offset for place, offset in found.items() if offset is not None}
        for place in places:
            if place not in ends:
                raise _vanished(place, "no broker knows its offsets")
        return ends


def _vanished(where: object, reason: str) -> TopicError:
    return TopicError(
        f"{where} cannot be read: {reason}",
        checked="Metadata, and the offsets its leader gives",
        remedy="Start the query again when all brokers are up; if the topic was deleted, its records are gone",
    )


def _state(description: inspection.TransactionDescription) -> TransactionState:
    """Read the state of a transaction; a newer broker may have one that nothing here is made for."""
    try:
        return TransactionState(description.state)
    except ValueError:
        raise UnsupportedError(
            f"Transactional id {description.transactional_id!r} is in a state that this version of the package does "
            f"not know: {description.state!r}",
            checked="DescribeTransactions",
            remedy="Upgrade this package to a version made for these brokers",
        ) from None


def end_answer(result: control.EndTxnResult) -> EndAnswer:
    """Read EndTxn's result; a code that is not known is no success either."""
    if not result.answered:
        return EndAnswer(None)
    try:
        code = ErrorCode(result.error_code)
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    following = result.next_identity
    identity = None if following is None else ProducerIdentity(following.producer_id, following.producer_epoch)
    return EndAnswer(code, identity)


def _identity(ending: Ending) -> control.TransactionIdentity:
    return control.TransactionIdentity(ending.transactional_id, *ending.identity, ending.transaction_version)


def _records(chunk: FetchedChunk) -> Iterator[KeyedRecord]:
    """Read a chunk's records, but for those of aborted transactions (none are named for read_uncommitted)."""
    for position, header in visible_in(chunk):
        for record in read_records(chunk.data, position, header):
            yield KeyedRecord(record.offset, record.key, record.value)
