"""The requests to the transaction coordinator and its answers, without wire versions."""

from collections.abc import Mapping
from typing import NamedTuple

from broker_core.coordinator.transactions.records import TransactionImage
from broker_core.errors import ErrorCode
from broker_core.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, TransactionEnd


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


class TransactionList(NamedTuple):
    """The answer to ListTransactions, by transactional id; `unknown_states` repeats the unknown state filters."""

    error: ErrorCode
    unknown_states: tuple[str, ...] = ()
    transactions: Mapping[str, TransactionImage] = {}


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
