"""The open transactions of many partitions at once (DescribeProducers, KIP-664), for tools that look again and again.

Unlike `TransactionAdmin.describe_producers`, one attempt is made and partitions that fail are left out with the reason:
the next look covers them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kafka.protocol.admin import DescribeProducersRequest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.active_producers import ActiveProducer
from spark_eos.client.error_table import code_name
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.errors import EosKafkaError

# Larger requests would keep a broker busy for long; Kafka's own tool uses the same size.
_MOST_AT_ONCE: Final = 500


def describe_open(
    client: KafkaClient, leaders: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
) -> tuple[dict[TopicPartition, list[ActiveProducer]], dict[TopicPartition, str]]:
    """Return the open transactions of partitions, oldest first, and why partitions could not be described.

    Each leader has one request in flight.
    """
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    failed: dict[TopicPartition, str] = {}
    for wave in _waves(leaders):
        requests = [(leader, _request(places)) for leader, places in wave]
        for (_, places), response in zip(wave, client.send_all(requests, timeout_ms=timeout_ms), strict=True):
            if isinstance(response, EosKafkaError):
                failed |= dict.fromkeys(places, response.happened)
                continue
            for topic in response.topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    if each.error_code != ErrorCode.NONE:
                        failed[place] = code_name(each.error_code)
                        continue
                    opened = [
                        ActiveProducer(
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.last_sequence,
                            producer.last_timestamp,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                        )
                        for producer in each.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]
                    found[place] = sorted(opened, key=lambda producer: producer.first_offset)
    return found, failed


def _waves(leaders: Mapping[TopicPartition, int]) -> Iterator[list[tuple[int, list[TopicPartition]]]]:
    """Split the partitions into rounds with at most one request for each leader."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for place, leader in sorted(leaders.items()):
        if leader >= 0:
            by_leader.setdefault(leader, []).append(place)
    start = 0
    while any(len(places) > start for places in by_leader.values()):
        yield [
            (leader, places[start : start + _MOST_AT_ONCE])
            for leader, places in by_leader.items()
            if len(places) > start
        ]
        start += _MOST_AT_ONCE


def _request(places: list[TopicPartition]) -> DescribeProducersRequest:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
