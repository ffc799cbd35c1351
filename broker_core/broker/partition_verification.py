"""The verification that partitions belong to a transaction, and their addition by partition leaders (KIP-890).

Kafka's brokers send AddPartitionsToTxn 4+ for this. Here it is a call, since all brokers run in one
process; the leader translates the error codes in the same way (rules C.3 ask).
"""

from collections.abc import Collection
from enum import Enum

from broker_core.broker.broker import Broker
from broker_core.broker.controller import Controller
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import TRANSACTION_STATE_TOPIC, ProducerIdentity, TopicPartition

TRANSACTIONS_V2 = 2


class Mode(Enum):
    """The kind of verification, by the version of the client's request."""

    OLD_ERROR = "verify, for clients without TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"


OLD_ERROR, VERIFY, ADD = Mode.OLD_ERROR, Mode.VERIFY, Mode.ADD


def coordinator_answers(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
    mode: Mode,
    now_ms: int,
) -> tuple[dict[TopicPartition, ErrorCode], bool]:
    """Return the coordinator's answer for each partition, and whether there is a coordinator that was asked.

    The answers are in the codes that a Produce response may use.
    """
    try:
        coordinator = _coordinator(broker.controller, transactional_id)
    except KafkaError as error:
        # As in Kafka, neither a duration nor a failure is counted.
        return {topic_partition: _for_leader(error.code, mode) for topic_partition in partitions}, False
    if mode is ADD:
        code = coordinator.add_partitions(
            transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            partitions,
            client_transaction_version=TRANSACTIONS_V2,
            now_ms=now_ms,
        )
        answers = dict.fromkeys(partitions, code)
    else:
        answers = coordinator.verify_partitions(
            transactional_id, producer.producer_id, producer.producer_epoch, partitions
        )
    broker.meters.verification_failures += sum(code != ErrorCode.NONE for code in answers.values())
    return {topic_partition: _for_leader(code, mode) for topic_partition, code in answers.items()}, True


def _coordinator(controller: Controller, transactional_id: str) -> TransactionCoordinator:
    """Return the coordinator of the id; raises COORDINATOR_NOT_AVAILABLE if its state partition has no leader."""
    state_partition = controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, transactional_id)
    broker = controller.leader_of(state_partition)
    if broker is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"state partition {state_partition.partition} has no leader"
        )
    return broker.transactions


def _for_leader(code: ErrorCode, mode: Mode) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and mode is OLD_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return code
