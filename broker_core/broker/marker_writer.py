"""What transaction coordinators and partition leaders ask of one another: markers, and verification (KIP-890).

Kafka's brokers send WriteTxnMarkers and AddPartitionsToTxn 4+ for this. Here they are calls, since all brokers run in
one process; the leader translates the error codes in the same way (rules C.3 ask).
"""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from broker_core.broker.broker import Broker, SyncQueue
from broker_core.broker.controller import Controller
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.request_log import RequestSeen
from broker_core.coordinator.transactions.coordinator import TransactionCoordinator
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ProducerIdentity,
    TopicPartition,
    TransactionEnd,
)

# What a fault does with a marker: of the functions, one writes it, one answers without writing it, and one syncs
# earlier writes. The result tells whether the fault handles the marker.
InterceptMarker = Callable[[RequestSeen, Callable[[], None], Callable[[ErrorCode], None], Callable[[], None]], bool]


@dataclass(eq=False, kw_only=True)
class MarkerWriter:
    """The delivery of markers from the coordinators of a cluster to the leaders of the partitions."""

    brokers: Mapping[int, Broker]
    running: Container[int]
    metadata: ClusterMetadata
    sync_queue: SyncQueue
    sync: Callable[[], None]
    now_ms: Callable[[], int]
    # Faults are injected only into an open cluster: opening it writes the markers left by the previous run.
    intercept: InterceptMarker | None = None

    def deliver(self, sender: Broker, order: MarkerOrder, now_ms: int) -> None:
        """Deliver a coordinator's order to the leader of each partition, and return the answers to the coordinator.

        The answers wait until the markers are durable: if the completion survived a crash and a marker did not, the
        partition would have a transaction that never ends.
        """
        answers = {}
        for topic_partition in sorted(order.partitions):
            intercept = self.intercept
            if intercept is not None and self._is_intercepted(intercept, sender, order, topic_partition, now_ms):
                continue
            if sender.broker_id not in self.running:
                # A fault has stopped the coordinator during delivery; its successor starts again.
                return
            answers[topic_partition] = self._write(order, topic_partition, now_ms)
        self.sync_queue.put(partial(sender.transactions.completion.answered, order, answers))

    def _is_intercepted(
        self,
        intercept: InterceptMarker,
        sender: Broker,
        order: MarkerOrder,
        topic_partition: TopicPartition,
        now_ms: int,
    ) -> bool:
        """Return whether a fault handles this marker; the fault then also answers, now or later."""

        def answer(code: ErrorCode) -> None:
            self.sync_queue.put(partial(sender.transactions.completion.answered, order, {topic_partition: code}))

        def write() -> None:
            if sender.broker_id in self.running:
                answer(self._write(order, topic_partition, self.now_ms()))

        seen = RequestSeen.of_marker(topic_partition, order.transactional_id, sender.broker_id, now_ms)
        return intercept(seen, write, answer, self.sync)

    def _write(self, order: MarkerOrder, topic_partition: TopicPartition, now_ms: int) -> ErrorCode:
        leader = self._leader_of(topic_partition)
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return append_marker(leader, topic_partition, order.end, now_ms)

    def _leader_of(self, topic_partition: TopicPartition) -> Broker | None:
        try:
            return self.brokers.get(self.metadata.leadership(topic_partition).leader)
        except KafkaError:
            return None


def append_marker(broker: Broker, topic_partition: TopicPartition, end: TransactionEnd, now_ms: int) -> ErrorCode:
    """Write one marker as the partition's leader; answer as WriteTxnMarkers does (rules A.13, C.6)."""
    try:
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            return broker.groups.complete_transaction(topic_partition.partition, end, now_ms)
        log, leader_epoch = broker.led_log(topic_partition, now_ms)
        broker.require_in_sync(topic_partition, log)
        log.append_end_txn_marker(end, now_ms=now_ms, leader_epoch=leader_epoch)
    except KafkaError as error:
        return error.code
    broker.logs.appended(topic_partition)
    return ErrorCode.NONE


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
            transactional_id, producer, partitions, client_transaction_version=TRANSACTIONS_V2, now_ms=now_ms
        )
        answers = dict.fromkeys(partitions, code)
    else:
        answers = coordinator.verify_partitions(transactional_id, producer, partitions)
    failures = sum(map(bool, answers.values()))
    if failures:
        broker.meters.verification_failures += failures
        answers = {topic_partition: _for_leader(code, mode) for topic_partition, code in answers.items()}
    return answers, True


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
