"""The client's side of the protocol inside the process: requests, responses, and the assignments of groups."""

import io
import struct
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker_core.types import TopicPartition

_LENGTH_BYTES = 4


def encode_request(request: Any, version: int, client_id: str | None, correlation_id: int = 0) -> bytes:
    # A body that was read in its plain form has no such attribute.
    request._header = None
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    frame: bytes = request.encode(header=True, framed=True)
    return frame


def decode_response(request: Any, frame: bytes) -> Any:
    form = ResponseClassRegistry.get_response_class(request.header)
    assert form is not None, f"{type(request).__name__} has no response"
    return form.decode(frame[_LENGTH_BYTES:], header=True)


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
