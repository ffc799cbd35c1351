"""The interface to a Kafka cluster that the sink needs, so that its rules can be tested without one."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import EosKafkaError
from spark_eos.runtime import Runtime


class Description(NamedTuple):
    """What the coordinator reports about one transactional id; `started_at_ms` is -1 without a transaction.

    `topic_partitions` are those that the end of the open transaction will write a marker to.
    """

    transactional_id: str
    state: TransactionState
    identity: ProducerIdentity
    timeout_ms: int
    started_at_ms: int
    topic_partitions: frozenset[TopicPartition] = frozenset()


class Ending(NamedTuple):
    """The request to end one exactly named transaction, by the protocol it was begun with."""

    transactional_id: str
    identity: ProducerIdentity
    commit: bool
    transaction_version: int


class EndAnswer(NamedTuple):
    """The result of EndTxn: a hint, not the outcome. `code` is None if there was no response in time."""

    code: ErrorCode | None
    next_identity: ProducerIdentity | None = None


class BatchTrace(NamedTuple):
    """One record batch that a fetch returned."""

    first_offset: int
    last_offset: int
    identity: ProducerIdentity
    is_control: bool


class CommittedView(NamedTuple):
    """What a read_committed fetch at one offset returns; `batches` starts with the one that contains the offset.

    It is empty if nothing is visible yet.
    """

    last_stable_offset: int
    batches: tuple[BatchTrace, ...]
    aborted: tuple[AbortedTransaction, ...]


class KeyedRecord(NamedTuple):
    """One record of the decision topic; without a value it deletes the earlier ones of its key."""

    offset: int
    key: bytes | None
    value: bytes | None


class UnendedRecord(NamedTuple):
    """A record whose transaction has not ended in its partition."""

    topic_partition: TopicPartition
    record: KeyedRecord
    identity: ProducerIdentity


class UnstableRest(NamedTuple):
    """The records of a partition that are after its last stable offset; `blocker` describes the oldest transaction."""

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    blocker: str


class FoundRecords(NamedTuple):
    """The committed records of some keys, by offset in each partition, and where the scan of each ended."""

    records: tuple[tuple[TopicPartition, KeyedRecord], ...]
    unended: tuple[UnendedRecord, ...]
    ends: Mapping[TopicPartition, int]


class CommittedOffset(NamedTuple):
    """One offset of a consumer group."""

    topic_partition: TopicPartition
    offset: int
    metadata: str


class UnstableOffsetsError(EosKafkaError):
    """An error: a group has offsets in a transaction that has not ended."""


class SinkCluster(Protocol):
    """The cluster: every method waits out retriable errors up to the client's time limits."""

    @property
    def runtime(self) -> Runtime:
        """Return the runtime of the calling process: its clock, randomness and identity."""

    def transaction_version(self) -> int:
        """Return the finalized `transaction.version`."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Become the owner of an id; whatever it had open is aborted."""

    def own_some_of(
        self, transactional_ids: Iterator[str], count: int, timeout_ms: int
    ) -> Sequence[tuple[str, ProducerIdentity]]:
        """Become the owner of at least one of these ids, and of `count` if their coordinators respond at once.

        An id whose coordinator did not respond is given up.
        """

    def describe_transactions(
        self, transactional_ids: Collection[str], *, wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        """Describe ids; one the coordinator does not know is left out."""

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        """Look up the coordinators of these ids, and of the group, again before the next request."""

    def agree_on_coordinator(self, group_id: str) -> None:
        """Make sure that no broker names another coordinator of the group; raises `UnansweredError` otherwise."""

    def open_transactions(self, id_prefix: str, *, wait_ms: int | None = None) -> Sequence[str]:
        """List ids that begin with `id_prefix` and have an open transaction.

        Every broker must respond; with `wait_ms`, those that do not respond in that time are left out.
        """

    def committed_ids(self, query: str) -> Sequence[str]:
        """List the transactional ids of a query's tasks, under any prefix, whose last transaction was committed.

        Every broker must respond.
        """

    def end_transactions(self, endings: Sequence[Ending], *, wait_ms: int | None = None) -> Mapping[str, EndAnswer]:
        """End transactions in parallel, each repeated until there is a response or the time is up."""

    def views(
        self, offsets: Mapping[TopicPartition, int], *, wait_ms: int
    ) -> Mapping[TopicPartition, CommittedView | None]:
        """Return a view of one place in each of many partitions, all at once; None if it no longer exists.

        A partition whose leader does not respond within the time is left out.
        """

    def unstable_ends(
        self, topic_partition: TopicPartition, offsets: Mapping[int, int], *, wait_ms: int
    ) -> Mapping[int, bool]:
        """Return which producers' transactions are committed and which are aborted, by their markers.

        This is for offsets that committed readers cannot reach yet. Each producer comes with the last offset of its
        transaction; one whose marker is not found within the time is left out.
        """

    def committed_offsets(self, group_id: str, *, wait_ms: int) -> Sequence[CommittedOffset]:
        """Read all offsets of a group, in any topic.

        Raises `UnstableOffsetsError` if a pending one is not ended in time, and `TopicError` if the decision topic does
        not exist.
        """

    def last_offsets(self, group_id: str) -> Sequence[CommittedOffset]:
        """Read all offsets of a group with one request; a pending one is left out."""

    def read_records(self, topic_partition: TopicPartition, offset: int, count: int) -> Sequence[KeyedRecord]:
        """Read up to `count` records from an offset, committed or not, without control records."""

    def find_records(
        self, starts: Mapping[TopicPartition, int | None], is_wanted: Callable[[bytes, int], bool]
    ) -> FoundRecords:
        """Find records by key in partitions, each from an offset (None: from its beginning) to its current end.

        `is_wanted` is called with a record's key and its time in milliseconds.

        Open transactions of other producers do not block this. Raises `TopicError` if a partition does not exist.
        """

    def begins_with(self, topic_partition: TopicPartition, key: bytes) -> bool:
        """Return whether a record of this key is among the first of a partition."""

    def all_records(self, topic: str, *, waits: bool = True) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        """Scan the committed records of a topic; raises `TopicError` if it does not exist.

        It reads up to the current end and waits for open transactions, or, without `waits`, up to the last stable
        offsets.
        """

    def unstable_rests(self, topic: str) -> Sequence["UnstableRest"]:
        """Return the partitions of a topic that end in records of open transactions, and what blocks them."""

    def partition_count(self, topic: str) -> int:
        """Count a topic's partitions; raises `TopicError` when it does not exist."""

    def partition_counts(self, topics: Collection[str], *, micro_batch: Hashable | None = None) -> Mapping[str, int]:
        """Count the partitions of topics now, or as this process first counted them for a micro-batch."""

    def replaced_topics(
        self, written: Mapping[str, Collection[UUID]], transactional_ids: Collection[str]
    ) -> Collection[str]:
        """Return the topics that were deleted and created again since tasks wrote to them.

        `transactional_ids` belong to the tasks. Raises `TopicError` if a topic does not exist.
        """

    def leaderless_partitions(self, topics: Collection[str]) -> Mapping[str, Collection[int]]:
        """Return the partitions that had no leader a moment ago; none if that cannot be determined quickly."""

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Return the batch size for a topic: as wanted, or smaller if its leaders have refused that."""

    def write_decision(self, write: "DecisionWrite") -> EndAnswer:
        """Append records, commit the offset of the first to a group, and end: one transaction.

        If anything fails or `decide_by_ms` has passed before the end is sent, this aborts the transaction and raises;
        after that the response is a hint.
        """


class DecisionWrite(NamedTuple):
    """One atomic write to the decision topic; a record's value is None to delete it.

    `metadata` is committed with the offset of the first record; None commits no offset. After `decide_by_ms` (None:
    never) the transactions decided on may time out before they are completed, so the decision must not be committed.
    `check` receives the group's committed offsets before the end is sent, from the coordinator that has accepted the
    offset of this transaction; if it raises, the transaction is aborted. `confirm` is called while the records are
    being sent, and returns the `decide_by_ms` to use; if it raises, the transaction is aborted. Until then
    `decide_by_ms` only limits the waiting.
    """

    transactional_id: str
    identity: ProducerIdentity
    transaction_version: int
    topic_partition: TopicPartition
    records: tuple[tuple[bytes, bytes | None], ...]
    group_id: str
    metadata: str | None
    now_ms: int
    micro_batch: int
    decide_by_ms: int | None = None
    check: Callable[[Sequence[CommittedOffset]], None] | None = None
    confirm: Callable[[], int] | None = None
