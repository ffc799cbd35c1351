"""The interfaces of the log that a coordinator stores its state in.

A coordinator decides, records the decision, and changes its state only by replaying the record. So
state changes have the journal's order, live and after a restart.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from broker_core.errors import ErrorCode
from broker_core.records.control import ControlType
from broker_core.types import ProducerIdentity, TransactionEnd


class JournalRecord(NamedTuple):
    """One record to append; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class JournalEntry(NamedTuple):
    """One record that was read, with the producer and control type of its batch.

    `control` is set for an end-of-transaction marker, which has neither key nor value here.
    """

    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    control: ControlType | None
    key: bytes | None
    value: bytes | None


class Journal(Protocol):
    """The partitions of one coordinator topic."""

    def append(
        self,
        partition: int,
        coordinator_epoch: int,
        records: Sequence[JournalRecord],
        now_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        """Append the records and return the offset of the first.

        With `producer` they form one transactional batch of that producer (offset commits). Raises
        `KafkaError`: NOT_LEADER_OR_FOLLOWER if `coordinator_epoch` is not the partition's current leader
        epoch, or the log's error; nothing is appended then.
        """
        ...

    def append_marker(self, partition: int, coordinator_epoch: int, end: TransactionEnd, now_ms: int) -> int:
        """Append the marker that ends the producer's transaction in the partition, and return its offset.

        Only `__consumer_offsets` needs it. `coordinator_epoch` belongs to the group coordinator; the epoch in `end`
        belongs to the sender.
        Raises `KafkaError` as `append`, and for a fenced sender.
        """
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """Return the current maximum size of a batch in the partition."""
        ...

    def read(self, partition: int) -> Iterator[JournalEntry]:
        """Yield every entry of the partition, from the log start offset to the log end offset."""
        ...


class Recorder(Protocol):
    """The interface through which durable state is changed: records are appended to the journal, then replayed."""

    def record(
        self, records: Sequence[JournalRecord], now_ms: int, producer: ProducerIdentity | None = None
    ) -> ErrorCode:
        """Append the records, then replay them; after an error nothing has changed."""
        ...
