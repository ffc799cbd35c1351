"""What a partition remembers of its producers (DescribeProducers, KIP-664), as its leader says."""

from dataclasses import dataclass

from kafka.protocol.admin import DescribeProducersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import partition_error


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """Say what a partition remembers of one producer; -1 stands for nothing, `first_offset` is of an open transaction.

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
        """Say whether the producer has a transaction open in the partition."""
        return self.first_offset >= 0

    @property
    def transaction(self) -> tuple[int, int, int]:
        """Name the open transaction; more may be written to it meanwhile, which changes the other fields."""
        return self.producer_id, self.producer_epoch, self.first_offset


def open_transactions(
    client: KafkaClient, topic_partition: TopicPartition, leader_id: int, *, timeout_ms: float | None = None
) -> list[ActiveProducer]:
    """List the producers with a transaction open in a partition, the oldest first: it holds the last stable offset."""
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
