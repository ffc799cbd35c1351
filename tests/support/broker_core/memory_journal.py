"""A coordinator's journal in memory, with leader epochs and failures on request."""

from collections.abc import Iterator, Sequence

from broker_core.coordinator.journal import JournalEntry, JournalRecord
from broker_core.errors import ErrorCode, KafkaError
from broker_core.records.control import ControlType
from broker_core.types import ProducerIdentity, TransactionEnd


class MemoryJournal:
    """A `Journal`; `refuse_next` makes the next appends fail, `epochs` has the leader epoch of each partition."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[JournalEntry]] = {}
        self.epochs: dict[int, int] = {}
        self.refuse_next: list[ErrorCode] = []
        self.unreadable = False
        self.batch_limit_bytes = 1_048_588

    def lead(self, partition: int) -> int:
        """Begin a new leader epoch for the partition and return it."""
        self.epochs[partition] = self.epochs.get(partition, 0) + 1
        return self.epochs[partition]

    def append(
        self,
        partition: int,
        coordinator_epoch: int,
        records: Sequence[JournalRecord],
        now_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        """Append as `Journal.append` does."""
        self._check(partition, coordinator_epoch)
        producer_id, producer_epoch = producer or (-1, -1)
        entries = self.partitions.setdefault(partition, [])
        base_offset = len(entries)
        entries.extend(
            JournalEntry(
                base_offset + index, now_ms, producer_id, producer_epoch, producer is not None, None, key, value
            )
            for index, (key, value) in enumerate(records)
        )
        return base_offset

    def append_marker(self, partition: int, coordinator_epoch: int, end: TransactionEnd, now_ms: int) -> int:
        """Append a marker as `Journal.append_marker` does."""
        self._check(partition, coordinator_epoch)
        entries = self.partitions.setdefault(partition, [])
        control = ControlType.COMMIT if end.commit else ControlType.ABORT
        entries.append(JournalEntry(len(entries), now_ms, *end.producer, True, control, None, None))
        return len(entries) - 1

    def max_batch_bytes(self, partition: int) -> int:
        """Return the limit that the test has set."""
        return self.batch_limit_bytes

    def read(self, partition: int) -> Iterator[JournalEntry]:
        """Yield the appended batches."""
        if self.unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "ordered by the test")
        yield from list(self.partitions.get(partition, []))

    def _check(self, partition: int, leader_epoch: int) -> None:
        if self.refuse_next:
            raise KafkaError(self.refuse_next.pop(0), "ordered by the test")
        if leader_epoch != self.epochs.setdefault(partition, leader_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"epoch {leader_epoch}, not {self.epochs[partition]}")
