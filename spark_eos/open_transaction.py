"""An open transaction, by the names that end it, and the answer to its end: for tasks, drivers and the client."""

from typing import NamedTuple

from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity


class OpenTransaction(NamedTuple):
    """A transaction, named exactly, so that any process can end it.

    The producer id and epoch name this transaction and no other: an epoch is never used for two (FLINK-8132 is what
    happens otherwise). `transaction_version` is the protocol that it was begun with. It determines the EndTxn version,
    however the cluster's feature level has changed since: a different one gets an error for a transaction that is
    committed.
    """

    transactional_id: str
    producer: ProducerIdentity
    transaction_version: int

    def is_after(self, used: ProducerIdentity) -> bool:
        """Return whether this comes after an epoch that the id has had.

        If brokers lose the newest records of an id, its epochs come again. Under the old protocol a leader then takes
        new records for earlier ones of this epoch: it acknowledges them and writes none.
        """
        return self.producer.producer_id != used.producer_id or self.producer > used


class EndAnswer(NamedTuple):
    """The result of EndTxn: a hint, not the outcome. `code` is None if there was no final response in time.

    `next_identity` is with what the producer goes on, or None if the broker did not return it.
    """

    code: ErrorCode | None
    next_identity: ProducerIdentity | None = None

    @property
    def word(self) -> str:
        return self.code.name if self.code else "no response"
