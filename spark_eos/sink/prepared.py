"""Prepared transactions and their contents, for messages, decisions and recovery."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from broker_core.types import NO_LEADER_EPOCH, ProducerIdentity, TopicPartition
from spark_eos.open_transaction import OpenTransaction


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """The offsets of one topic-partition that a transaction has written; both ends inclusive.

    `topic_id` is the topic that has them, if the task's brokers name it. A decision keeps it if its tasks had the same.
    A decision does not keep `leader_epoch`, of the leader that the first was sent to, and `next_sequence`, the one
    after the last.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    record_count: int
    topic_id: UUID | None = field(default=None, compare=False)
    leader_epoch: int = field(default=NO_LEADER_EPOCH, compare=False)
    next_sequence: int = field(default=0, compare=False)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of one task for one topic: their number, and their order-independent checksum (`codec.row_checksum`)."""

    topic: str
    record_count: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """One flushed transaction with its contents, as in commit messages and decisions.

    `split` is Spark's partition id. `rows` has one entry for each topic.
    """

    split: int
    opened: OpenTransaction
    timeout_ms: int
    started_at_ms: int
    ranges: tuple[WrittenRange, ...]
    rows: tuple[TopicRows, ...] = ()

    @property
    def transactional_id(self) -> str:
        return self.opened.transactional_id

    @property
    def producer(self) -> ProducerIdentity:
        return self.opened.producer

    @property
    def record_count(self) -> int:
        return sum(written.record_count for written in self.ranges)


def ids_of_topics(transactions: Iterable[PreparedTransaction]) -> dict[str, set[UUID]]:
    """Return the ids that each topic had when the transactions wrote to it; topics without an id are left out."""
    ids: dict[str, set[UUID]] = {}
    for written in (each for transaction in transactions for each in transaction.ranges):
        if written.topic_id is not None:
            ids.setdefault(written.topic, set()).add(written.topic_id)
    return ids
