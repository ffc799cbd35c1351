"""The values in which the protocol speaks with Kafka: what a request names, and what an answer says."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction, ProducerIdentity, TopicPartition, TransactionState
from spark_eos.errors import EosKafkaError, UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange

ABORTED: Final = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
COMMITTED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class Description(NamedTuple):
    """What the coordinator reports about one transactional id; `started_at_ms` is -1 without a transaction.

    The end of the open transaction will write a marker to each of `topic_partitions`.
    """

    transactional_id: str
    state: TransactionState
    producer: ProducerIdentity
    timeout_ms: int
    started_at_ms: int
    topic_partitions: frozenset[TopicPartition] = frozenset()


class BatchTrace(NamedTuple):
    """One record batch that a fetch returned."""

    first_offset: int
    last_offset: int
    producer: ProducerIdentity


class CommittedView(NamedTuple):
    """What a read_committed fetch at one offset returns; the first of `batches` contains the offset.

    It is empty if nothing is visible yet.
    """

    last_stable_offset: int
    batches: tuple[BatchTrace, ...]
    aborted: tuple[AbortedTransaction, ...]


class LostRange(NamedTuple):
    """Records of a prepared transaction that their partition does not have."""

    transaction: PreparedTransaction
    written: WrittenRange


class KeyedRecord(NamedTuple):
    """One record of the decision topic; without a value it deletes the earlier ones of its key.

    `producer` has written it; None if that was not read.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    producer: ProducerIdentity | None = None


class FoundRecords(NamedTuple):
    """The committed records of some keys, by offset in each partition, and where the scan of each ended.

    `unended` have transactions that have not ended in their partitions.
    """

    records: tuple[tuple[TopicPartition, KeyedRecord], ...]
    unended: tuple[tuple[TopicPartition, KeyedRecord], ...]
    ends: Mapping[TopicPartition, int]


class CommittedOffset(NamedTuple):
    """One offset of a consumer group."""

    topic_partition: TopicPartition
    offset: int
    metadata: str


class ShortLogError(UnansweredError):
    """A leader whose log ends before a record that was committed to it."""


class UnstableOffsetsError(EosKafkaError):
    """An error: a group has offsets in a transaction that has not ended."""


class DecisionWrite(NamedTuple):
    """One transaction of a driver with records of the decision topic; a record's value is None to delete it.

    `metadata` is committed with the offset of the first record; None commits no offset. After `decide_by_ms` (None:
    never) the transactions decided on may time out before they are completed, so waiting is limited by it.
    `reads_offsets` asks for the group's committed offsets, from the coordinator that has accepted this one.
    """

    transaction: OpenTransaction
    topic_partition: TopicPartition
    records: tuple[tuple[bytes, bytes | None], ...]
    group_id: str
    metadata: str | None
    now_ms: int
    micro_batch: int
    decide_by_ms: int | None = None
    reads_offsets: bool = False


class Appended(NamedTuple):
    """The records and the offset of a decision are in its open transaction, or `code` says why the driver is fenced.

    `first_offset` is where the decision begins, once that is known. `offsets` are the group's offsets before this
    decision, if they were to be read.
    """

    code: ErrorCode = ErrorCode.NONE
    offsets: tuple[CommittedOffset, ...] = ()
    first_offset: int | None = None
