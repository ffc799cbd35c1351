"""A partition's state of one producer, as immutable values (rules C.2)."""

from typing import Final, NamedTuple, Self

from broker_core.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, previous_sequence

# Clients have at most five requests in flight, so an older batch cannot be a valid retry (KIP-98).
REMEMBERED_BATCHES: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
NO_OFFSET: Final = -1


class BatchMetadata(NamedTuple):
    """The metadata of one batch, with which a duplicate is detected and answered."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return previous_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry(NamedTuple):
    """One producer's epochs, newest batches (oldest first) and open transaction in this partition."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp_ms: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Return the newest batch's last sequence, -1 if the epoch has no batch since its start or the last marker."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, producer_epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the batch that this one repeats, if any (rules C.4)."""
        if producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def with_batch(self, producer_epoch: int, batch: BatchMetadata, txn_first_offset: int | None) -> Self:
        """Return the entry after a data batch; a new epoch drops the batches before it."""
        kept = self.batches[1 - REMEMBERED_BATCHES :] if producer_epoch == self.producer_epoch else ()
        return self.__class__(
            self.producer_id,
            producer_epoch,
            self.coordinator_epoch,
            batch.timestamp_ms,
            txn_first_offset,
            (*kept, batch),
        )

    def with_marker(self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> Self:
        """Return the entry after a marker, which ends the open transaction."""
        kept = self.batches if producer_epoch == self.producer_epoch else ()
        return self.__class__(self.producer_id, producer_epoch, coordinator_epoch, timestamp_ms, None, kept)
