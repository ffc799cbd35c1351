"""Committed offsets of a consumer group."""

import uuid

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient


def committed(address: str, group: str) -> dict[int, int]:
    """Return a group's committed offsets, as lag tools request them."""
    # The name keeps a reference: the handle must outlive the request.
    admin = AdminClient({"bootstrap.servers": address})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {each.partition: each.offset for each in answer.topic_partitions}


def new_group() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"
