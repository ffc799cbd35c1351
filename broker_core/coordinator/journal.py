"""The log that a coordinator keeps its state in, and the way by which its decisions get there.

A coordinator decides, has the decision recorded, and changes its state only by replaying the record; so
the journal's order is the order of its history, live and after a restart alike.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from broker_core.errors import ErrorCode
from broker_core.records.control import ControlType
from broker_core.types import ProducerIdentity


class JournalRecord(NamedTuple):
    """One record to be appended; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class JournalEntry(NamedTuple):
    """One record read back, with what its batch says about it.

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
        `KafkaError`: NOT_LEADER_OR_FOLLOWER when `coordinator_epoch` is not the partition's leader
        epoch any more, else what the log refused them with; nothing was appended then.
        """
        ...

    def append_marker(
        self,
        partition: int,
        coordinator_epoch_of_partition: int,
        *,
        producer: ProducerIdentity,
        commit: bool,
        txn_coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> int:
        """Append the marker that ends the producer's transaction here and return its offset.

        Only `__consumer_offsets` needs it. `coordinator_epoch_of_partition` is the group coordinator's,
        `txn_coordinator_epoch` the sender's. Raises `KafkaError` as `append`, and for a fenced sender.
        """
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """Return how large a batch of the partition may be now."""
        ...

    def read(self, partition: int) -> Iterator[JournalEntry]:
        """Yield every entry of the partition, from its log start to its end."""
        ...


class Recorder(Protocol):
    """The one way by which a decision changes what lasts: appended to the journal, then replayed."""

    def record(
        self,
        records: Sequence[JournalRecord],
        now_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> ErrorCode:
        """Append the records, then replay them; an error means that nothing happened."""
        ...
