"""The requests to the transaction coordinator and its answers, without wire versions."""

from typing import NamedTuple, Self

from broker_core.errors import ErrorCode
from broker_core.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity, TopicPartition, TransactionEnd


class InitProducerId(NamedTuple):
    """A request for a producer id and epoch; without a transactional id, for an idempotent producer.

    `producer_id` and `producer_epoch` are the caller's current identity (KIP-360), both -1 if it has none.
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    enable_2pc: bool = False
    keep_prepared: bool = False


class ProducerIdResult(NamedTuple):
    """The answer to InitProducerId and EndTxn; the identity is (-1, -1) if there is none."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @classmethod
    def granted(cls, identity: ProducerIdentity) -> Self:
        return cls(ErrorCode.NONE, identity.producer_id, identity.producer_epoch)


class DescribedTransaction(NamedTuple):
    """One transactional id in DescribeTransactions; `partitions` are those without a marker."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class ListedTransaction(NamedTuple):
    """One transactional id in ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionList(NamedTuple):
    """The answer to ListTransactions; `unknown_states` repeats the state filters that are unknown."""

    error: ErrorCode
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


class MarkerOrder(NamedTuple):
    """An order to write a transaction's markers to `partitions`.

    `order_id` identifies an order within one coordinator instance: under transactions V1 two
    transactions share a producer id and epoch, and an answer to the first must not end the second.
    """

    transactional_id: str
    state_partition: int
    end: TransactionEnd
    partitions: frozenset[TopicPartition]
    order_id: int
