"""The assignments that the leader of a classic consumer group distributes (the consumer's embedded protocol)."""

import io
import struct

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker_core.types import TopicPartition

_VERSION = struct.Struct(">h")


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions in a member's assignment; none if the bytes are empty or of another protocol."""
    if len(assignment) < _VERSION.size:
        return frozenset()
    try:
        # Newer versions only append fields, so version 0 reads the partitions of all of them.
        decoded = ConsumerProtocolAssignment.decode(io.BytesIO(assignment[_VERSION.size :]), version=0, header=False)
    except Exception:
        # The bytes come from a client, and may have any form.
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in decoded.assigned_partitions
        for partition in topic.partitions
    )
