"""The active producers of a partition (DescribeProducers, KIP-664), as its leader reports them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as a partition knows it; -1 means none, and `first_offset` belongs to an open transaction.

    `coordinator_epoch` comes from the last marker, so it is -1 before the first.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int

    @property
    def is_in_transaction(self) -> bool:
        return self.first_offset >= 0
