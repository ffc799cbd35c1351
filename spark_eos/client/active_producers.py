"""Ask a partition's leader which producers have a transaction open there (DescribeProducers, KIP-664)."""

from dataclasses import dataclass

from kafka.protocol.admin import DescribeProducersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import partition_error


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Say where in a partition a producer's open transaction begins."""

    producer_id: int
    producer_epoch: int
    first_offset: int


def open_transactions(
    client: KafkaClient, topic_partition: TopicPartition, leader_id: int, *, timeout_ms: float | None = None
) -> list[OpenTransaction]:
    """List the transactions open in a partition, the oldest first: that one holds the last stable offset."""
    topic = DescribeProducersRequest.TopicRequest(
        name=topic_partition.topic, partition_indexes=[topic_partition.partition]
    )
    response = client.send(leader_id, DescribeProducersRequest(topics=[topic]), timeout_ms=timeout_ms)
    found: list[OpenTransaction] = []
    for partition in (each for answered in response.topics for each in answered.partitions):
        if partition.error_code != ErrorCode.NONE:
            raise partition_error(topic_partition, partition.error_code, "describing its producers")
        found += [
            OpenTransaction(each.producer_id, each.producer_epoch, each.current_txn_start_offset)
            for each in partition.active_producers
            if each.current_txn_start_offset >= 0
        ]
    return sorted(found, key=lambda each: each.first_offset)
