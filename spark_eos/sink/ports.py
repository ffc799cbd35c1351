"""What the sink asks of a Kafka cluster, so that its rules can be tested without one."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import EosKafkaError
from spark_eos.runtime import Runtime


class Description(NamedTuple):
    """What the coordinator knows of one transactional id; `started_at_ms` is -1 without a transaction.

    `topic_partitions` are those that the end of the open transaction will write a marker into.
    """

    transactional_id: str
    state: TransactionState
    identity: ProducerIdentity
    timeout_ms: int
    started_at_ms: int
    topic_partitions: frozenset[TopicPartition] = frozenset()


class Ending(NamedTuple):
    """The wish to end one exactly named transaction, by the protocol it was begun with."""

    transactional_id: str
    identity: ProducerIdentity
    commit: bool
    transaction_version: int


class EndAnswer(NamedTuple):
    """What EndTxn said: a hint, never a verdict. `code` is None when no answer came in time."""

    code: ErrorCode | None
    next_identity: ProducerIdentity | None = None


class BatchTrace(NamedTuple):
    """One record batch that a fetch returned."""

    first_offset: int
    last_offset: int
    identity: ProducerIdentity
    is_control: bool


class CommittedView(NamedTuple):
    """What a read_committed fetch at one offset shows; `batches` starts with the one that holds the offset.

    There are none where nothing can be seen yet.
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
    """A record whose transaction has no end in its partition yet."""

    topic_partition: TopicPartition
    record: KeyedRecord
    identity: ProducerIdentity


class UnstableRest(NamedTuple):
    """The records of a partition that are behind its last stable offset; `blocker` names the oldest transaction."""

    topic_partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    blocker: str


class FoundRecords(NamedTuple):
    """The committed records of some keys, by offset in each partition, and where the look at each ended."""

    records: tuple[tuple[TopicPartition, KeyedRecord], ...]
    unended: tuple[UnendedRecord, ...]
    ends: Mapping[TopicPartition, int]


class CommittedOffset(NamedTuple):
    """One offset of a consumer group."""

    topic_partition: TopicPartition
    offset: int
    metadata: str


class UnstableOffsetsError(EosKafkaError):
    """A group has offsets in a transaction that has not ended yet."""


class SinkCluster(Protocol):
    """The cluster: every method waits out retriable errors up to the client's time limits."""

    @property
    def runtime(self) -> Runtime:
        """Return the outside of the process that asks: its clock, randomness and identity."""

    def transaction_version(self) -> int:
        """Give the finalized `transaction.version`."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Become the owner of an id; whatever it had open is aborted."""

    def own_some_of(
        self, transactional_ids: Iterator[str], count: int, timeout_ms: int
    ) -> Sequence[tuple[str, ProducerIdentity]]:
        """Become the owner of one of these ids or more, of `count` if their coordinators answer at once.

        An id whose coordinator did not answer is given up.
        """

    def describe_transactions(
        self, transactional_ids: Collection[str], *, wait_ms: int | None = None
    ) -> Mapping[str, Description]:
        """Describe ids; one the coordinator does not know is left out."""

    def forget_coordinators(self, transactional_ids: Collection[str], group_id: str | None = None) -> None:
        """Look up the coordinators of these ids, and of the group, again before they are asked next."""

    def agree_on_coordinator(self, group_id: str) -> None:
        """Make sure that no broker names another coordinator of the group; raises `UnansweredError` otherwise."""

    def open_transactions(self, id_prefix: str, *, wait_ms: int | None = None) -> Sequence[str]:
        """List ids that begin with `id_prefix` and have an open transaction.

        Every broker must answer, or with `wait_ms` those are left out that do not answer in that time.
        """

    def end_transactions(self, endings: Sequence[Ending], *, wait_ms: int | None = None) -> Mapping[str, EndAnswer]:
        """End transactions in parallel, each repeated until it is answered or the time is up."""

    def views(
        self, offsets: Mapping[TopicPartition, int], *, wait_ms: int
    ) -> Mapping[TopicPartition, CommittedView | None]:
        """Look at one place in each of many partitions, all at once; None where it is not there any more.

        A partition whose leader does not answer within the time is left out.
        """

    def unstable_ends(
        self, topic_partition: TopicPartition, offsets: Mapping[int, int], *, wait_ms: int
    ) -> Mapping[int, bool]:
        """Say by their markers which producers' transactions are committed and which aborted.

        For where committed readers do not get that far yet. Each producer comes with the last offset of its
        transaction; one whose marker is not found within the time is left out.
        """

    def committed_offsets(self, group_id: str, *, wait_ms: int) -> Sequence[CommittedOffset]:
        """Read all offsets of a group, in whatever topics.

        Raises `UnstableOffsetsError` when a pending one is not ended in time, and `TopicError` when the decision
        topic is not there.
        """

    def last_offsets(self, group_id: str) -> Sequence[CommittedOffset]:
        """Read all offsets of a group by one request; one that is pending is left out."""

    def read_records(self, topic_partition: TopicPartition, offset: int, count: int) -> Sequence[KeyedRecord]:
        """Read up to `count` records from an offset on, committed or not, control records left out."""

    def find_records(
        self, starts: Mapping[TopicPartition, int | None], is_wanted: Callable[[bytes, int], bool]
    ) -> FoundRecords:
        """Scan partitions for keys, each from an offset (None: from its beginning) to its end of now.

        `is_wanted` is called with a record's key and its time in milliseconds.

        Others' open transactions hold nothing up. Raises `TopicError` when a partition does not exist.
        """

    def begins_with(self, topic_partition: TopicPartition, key: bytes) -> bool:
        """Say whether a record of this key is among the first of a partition."""

    def all_records(self, topic: str, *, waits: bool = True) -> Iterator[tuple[TopicPartition, KeyedRecord]]:
        """Scan the committed records of a topic; raises `TopicError` when it does not exist.

        Up to its end of now, where open transactions are waited for, or without a wait up to the last stable offsets.
        """

    def unstable_rests(self, topic: str) -> Sequence["UnstableRest"]:
        """Name the partitions of a topic that end in what open transactions have written, and what is in the way."""

    def partition_count(self, topic: str) -> int:
        """Count a topic's partitions; raises `TopicError` when it does not exist."""

    def partition_counts(self, topics: Collection[str], *, ask_again: bool = False) -> Mapping[str, int]:
        """Count the partitions of topics as they were minutes ago at most, or now where it is to be asked again."""

    def leaderless_partitions(self, topics: Collection[str]) -> Mapping[str, Collection[int]]:
        """Name the partitions that had no leader a moment ago; no topic where that cannot be known soon."""

    def batch_bytes(self, topic: str, wanted_bytes: int) -> int:
        """Say how large to make batches for a topic: as wanted, or less where its leaders have refused so much."""

    def write_decision(self, write: "DecisionWrite") -> EndAnswer:
        """Append records, commit the offset of the first to a group, and end: one transaction.

        Raises before the end is sent when anything fails or `decide_by_ms` has passed, and has aborted the transaction
        then; after that the answer is a hint.
        """


class DecisionWrite(NamedTuple):
    """One atomic write to the decision topic; a record's value is None to delete it.

    `metadata` goes with the committed offset of the first record; None commits no offset.
    After `decide_by_ms` (None: never) the transactions decided on may time out before they are completed, so that the
    decision must not be committed any more.
    `check` is given the group's committed offsets before the end is sent, as the very coordinator knows them that has
    accepted the offset of this transaction; what it raises aborts the transaction.
    `confirm` is called while the records are on their way, and gives the `decide_by_ms` that counts; what it raises
    aborts the transaction. Until then `decide_by_ms` only bounds how long is waited.
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
