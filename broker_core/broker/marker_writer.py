"""The writing of the markers that end transactions, for coordinators and for administrators."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker_core.broker.broker import Broker, SyncQueue
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.request_log import RequestSeen
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import CONSUMER_OFFSETS_TOPIC, ProducerIdentity, TopicPartition


class MarkerInterceptor(Protocol):
    """The interface of fault injection for markers."""

    def intercept_marker(
        self,
        seen: RequestSeen,
        write: Callable[[], None],
        answer: Callable[[ErrorCode], None],
        sync: Callable[[], None],
    ) -> bool:
        """Return whether the interceptor handles the marker; `write` writes it, `answer` answers without writing it."""
        ...


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
    interceptor: MarkerInterceptor | None = None

    def deliver(self, sender: Broker, order: MarkerOrder, now_ms: int) -> None:
        """Deliver a coordinator's order to the leader of each partition, and return the answers to the coordinator.

        The answers wait until the markers are durable: if the completion survived a crash and a marker did not, the
        partition would have a transaction that never ends.
        """
        answers = {}
        for topic_partition in sorted(order.partitions):
            if self.interceptor is not None and self._is_intercepted(
                self.interceptor, sender, order, topic_partition, now_ms
            ):
                continue
            if sender.broker_id not in self.running:
                # A fault has stopped the coordinator during delivery; its successor starts again.
                return
            answers[topic_partition] = self._write(order, topic_partition, now_ms)
        self.sync_queue.put(partial(sender.transactions.marker_answered, order, answers))

    def _is_intercepted(
        self,
        interceptor: MarkerInterceptor,
        sender: Broker,
        order: MarkerOrder,
        topic_partition: TopicPartition,
        now_ms: int,
    ) -> bool:
        """Return whether a fault handles this marker; the fault then also answers, now or later."""

        def answer(code: ErrorCode) -> None:
            self.sync_queue.put(partial(sender.transactions.marker_answered, order, {topic_partition: code}))

        def write() -> None:
            if sender.broker_id in self.running:
                answer(self._write(order, topic_partition, self.now_ms()))

        seen = RequestSeen.of_marker(topic_partition, order.transactional_id, sender.broker_id, now_ms)
        return interceptor.intercept_marker(seen, write, answer, self.sync)

    def _write(self, order: MarkerOrder, topic_partition: TopicPartition, now_ms: int) -> ErrorCode:
        leader = self._leader_of(topic_partition)
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return append_marker(
            leader,
            topic_partition,
            ProducerIdentity(order.producer_id, order.producer_epoch),
            commit=order.commit,
            coordinator_epoch=order.coordinator_epoch,
            transaction_version=order.transaction_version,
            now_ms=now_ms,
        )

    def _leader_of(self, topic_partition: TopicPartition) -> Broker | None:
        try:
            return self.brokers.get(self.metadata.leadership(topic_partition).leader)
        except KafkaError:
            return None


def append_marker(
    broker: Broker,
    topic_partition: TopicPartition,
    producer: ProducerIdentity,
    *,
    commit: bool,
    coordinator_epoch: int,
    transaction_version: int,
    now_ms: int,
) -> ErrorCode:
    """Write one marker as the partition's leader; answer as WriteTxnMarkers does (rules A.13, C.6)."""
    try:
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            return broker.groups.complete_transaction(
                topic_partition.partition,
                producer,
                commit=commit,
                txn_coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                now_ms=now_ms,
            )
        log, leader_epoch = broker.led_log(topic_partition, now_ms)
        broker.require_in_sync(topic_partition, log)
        log.append_end_txn_marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
            leader_epoch=leader_epoch,
            transaction_version=transaction_version,
        )
    except KafkaError as error:
        return error.code
    broker.logs.appended(topic_partition)
    return ErrorCode.NONE
