"""Write the markers that end transactions, for the coordinators of this cluster and for administrators."""

from functools import partial
from typing import TYPE_CHECKING

from broker_core.errors import ErrorCode, KafkaError
from broker_core.types import CONSUMER_OFFSETS_TOPIC, ProducerIdentity, TopicPartition

if TYPE_CHECKING:
    from broker_core.broker.broker import Broker
    from broker_core.broker.cluster import Cluster
    from broker_core.coordinator.transaction_messages import MarkerOrder


def deliver(cluster: "Cluster", sender: "Broker", order: "MarkerOrder", now_ms: int) -> None:
    """Carry a coordinator's order to the leader of each partition, and the answers back.

    The answers wait for the markers to be durable, like any other: a completion that outlived a marker which a crash
    took back would leave the partition with a transaction that nobody ends.
    """
    producer = ProducerIdentity(order.producer_id, order.producer_epoch)
    answers = {}
    for topic_partition in sorted(order.partitions):
        leader = _leader(cluster, topic_partition)
        answers[topic_partition] = (
            append_marker(leader, topic_partition, producer, commit=order.commit,
                          coordinator_epoch=order.coordinator_epoch, transaction_version=order.transaction_version,
                          now_ms=now_ms)
            if leader is not None
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    cluster.outbox.put(partial(sender.transactions.marker_answered, order, answers))


def _leader(cluster: "Cluster", topic_partition: TopicPartition) -> "Broker | None":
    try:
        return cluster.brokers[cluster.catalog.leadership(topic_partition).leader]
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
                topic_partition.partition, producer, commit=commit, txn_coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version, now_ms=now_ms)
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
