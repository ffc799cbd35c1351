"""Write the markers that end transactions, for the coordinators of this cluster and for administrators."""

from functools import partial
from typing import TYPE_CHECKING

from broker_core.broker.request_log import RequestSeen
from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import CONSUMER_OFFSETS_TOPIC, ProducerIdentity, TopicPartition

if TYPE_CHECKING:
    from broker_core.broker.broker import Broker
    from broker_core.broker.cluster import Cluster
    from broker_core.broker.faults import Hooks
    from broker_core.coordinator.transactions.messages import MarkerOrder


def deliver(cluster: "Cluster", sender: "Broker", order: "MarkerOrder", now_ms: int) -> None:
    """Carry a coordinator's order to the leader of each partition, and the answers back.

    The answers wait for the markers to be durable, like any other: a completion that outlived a marker which a crash
    took back would leave the partition with a transaction that nobody ends.
    """
    answers = {}
    for topic_partition in sorted(order.partitions):
        if cluster.hooks is not None and _is_met(cluster, cluster.hooks, sender, order, topic_partition, now_ms):
            continue
        if sender.broker_id not in cluster.addresses:
            # A fault has stopped the coordinator in the middle; whoever follows it begins again.
            return
        answers[topic_partition] = _written(cluster, order, topic_partition, now_ms)
    cluster.outbox.put(partial(sender.transactions.marker_answered, order, answers))


def _written(cluster: "Cluster", order: "MarkerOrder", topic_partition: TopicPartition, now_ms: int) -> ErrorCode:
    leader = _leader(cluster, topic_partition)
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


def _is_met(
    cluster: "Cluster",
    hooks: "Hooks",
    sender: "Broker",
    order: "MarkerOrder",
    topic_partition: TopicPartition,
    now_ms: int,
) -> bool:
    """Say whether a fault takes care of this marker; its answer then comes on its own, now or later."""

    def answer(code: ErrorCode) -> None:
        cluster.outbox.put(partial(sender.transactions.marker_answered, order, {topic_partition: code}))

    def write() -> None:
        if sender.broker_id in cluster.addresses:
            answer(_written(cluster, order, topic_partition, cluster.now_ms))

    seen = RequestSeen.of_marker(topic_partition, order.transactional_id, sender.broker_id, now_ms)
    return hooks.meets_marker(seen, write, answer, cluster.sync)


def _leader(cluster: "Cluster", topic_partition: TopicPartition) -> "Broker | None":
    try:
        return cluster.leader_of(topic_partition)
    except KafkaError:
        return None


def append_marker(
    broker: "Broker",
    topic_partition: TopicPartition,
    producer: ProducerIdentity,
    *,
    commit: bool,
    coordinator_epoch: int,
    transaction_version: int,
    now_ms: int,
) -> ErrorCode:
    """Write one marker as the partition's leader; answer as WriteTxnMarkers does (facts A.13, C.6)."""
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
