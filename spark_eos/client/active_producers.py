"""The active producers of a partition (DescribeProducers, KIP-664), as its leader reports them."""

from dataclasses import dataclass

from kafka.protocol.admin import DescribeProducersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import partition_error


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as a partition knows it; -1 means none, and `first_offset` is that of an open transaction.

    `coordinator_epoch` is that of the last marker, so it is -1 before the first.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int

    @property
    def is_in_transaction(self) -> bool:
        """Return whether the producer has an open transaction in the partition."""
        return self.first_offset >= 0

    @property
    def transaction(self) -> tuple[int, int, int]:
        """Return what identifies the open transaction; the other fields change as more is written to it."""
        return self.producer_id, self.producer_epoch, self.first_offset


def open_transactions(
    client: KafkaClient, topic_partition: TopicPartition, leader_id: int, *, timeout_ms: float | None = None
) -> list[ActiveProducer]:
    """List the producers with an open transaction in a partition, oldest first: it blocks the last stable offset."""
    topic = DescribeProducersRequest.TopicRequest(
        name=topic_partition.topic, partition_indexes=[topic_partition.partition]
    )
    response = client.send(leader_id, DescribeProducersRequest(topics=[topic]), timeout_ms=timeout_ms)
    found: list[ActiveProducer] = []
    for partition in (each for answered in response.topics for each in answered.partitions):
        if partition.error_code != ErrorCode.NONE:
            raise partition_error(topic_partition, partition.error_code, "describing its producers")
        found += [
            ActiveProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in partition.active_producers
            if each.current_txn_start_offset >= 0
        ]
    return sorted(found, key=lambda each: each.first_offset)
