"""Produce and EndTxn in the form that nearly all messages have, read and written without walking the schema.

A broker handles far more Produce requests than others, and kafka-python's generic code took 20 µs to read one and 12 µs
to write its response, of 140 µs for a request of 16 kB in all; these functions take 6 and 3 µs. The schema stays the
only definition: what is not in the plain form (older versions, tagged fields, errors, malformed bytes) is left to it,
and a test compares both. The records are copied out of the frame once, into a `bytearray` that the log takes over.

Each transaction ends with an EndTxn: 3.9 µs to read the request and 3.2 µs to write the response become 0.7 and 0.2 µs.
"""

import struct
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from broker_core.wire import messages as m
from broker_core.wire.compact_fields import (
    NOT_PLAIN,
    NotPlain,
    blank,
    compact_length,
    count,
    end_of_struct,
    required_text,
    text,
    varint,
)

_Topic: Final = m.ProduceRequest.TopicProduceData
_Partition: Final = _Topic.PartitionProduceData
PRODUCE_KEY: Final = int(m.ProduceRequest.API_KEY)
_FIRST_VERSION: Final = 9
_FIRST_BY_ID_VERSION: Final = 13
_UUID_BYTES: Final = 16
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
# Index, error code, base offset, append time and log start offset; then no record errors, no message and no tags.
_APPENDED: Final = struct.Struct(">ihqqq3B")
# The throttle time, then no tags.
_END: Final = struct.Struct(">iB")


def read_produce_request(frame: bytes | bytearray, position: int, version: int) -> Any | None:
    """Return the body at `position`; None if it is not in the plain form, which says nothing about its validity."""
    if version < _FIRST_VERSION:
        return None
    try:
        return _read(frame, position, version)
    except NOT_PLAIN:
        return None


def _read(frame: bytes | bytearray, at: int, version: int) -> Any:
    transactional_id, at = text(frame, at)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, at)
    topic_count, at = count(frame, at + _ACKS_AND_TIMEOUT.size)
    topics = []
    for _ in range(topic_count):
        topic = blank(_Topic, version)
        if version >= _FIRST_BY_ID_VERSION:
            topic.name, topic.topic_id = "", _topic_id(bytes(frame[at : at + _UUID_BYTES]))
            at += _UUID_BYTES
        else:
            topic.topic_id = None
            topic.name, at = required_text(frame, at)
        partition_count, at = count(frame, at)
        partitions = []
        for _ in range(partition_count):
            (index,) = _INDEX.unpack_from(frame, at)
            length, at = varint(frame, at + _INDEX.size)
            end = at + length - 1
            if not length or end > len(frame):
                raise NotPlain
            records = bytearray(memoryview(frame)[at:end])
            at = end_of_struct(frame, end)
            partition = blank(_Partition, version)
            partition.index, partition.records = index, records
            partitions.append(partition)
        topic.partition_data = partitions
        at = end_of_struct(frame, at)
        topics.append(topic)
    end_of_struct(frame, at)
    body = blank(m.ProduceRequest, version)
    body.transactional_id, body.acks, body.timeout_ms, body.topic_data = transactional_id, acks, timeout_ms, topics
    return body


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> UUID | None:
    """Return a topic id, None for the zero id, as kafka-python does."""
    if len(data) != _UUID_BYTES:
        raise NotPlain
    return UUID(bytes=data) if any(data) else None


def encode_produce_response(response: Any, version: int) -> bytes | None:
    """Return the body of a response in which every batch was appended; None if it is not in the plain form."""
    if version < _FIRST_VERSION or response.tags:
        return None
    parts = [compact_length(len(response.responses))]
    for topic in response.responses:
        if version >= _FIRST_BY_ID_VERSION:
            parts.append(topic.topic_id.bytes if topic.topic_id is not None else bytes(_UUID_BYTES))
        else:
            name = topic.name.encode()
            parts += (compact_length(len(name)), name)
        parts.append(compact_length(len(topic.partition_responses)))
        for each in topic.partition_responses:
            if each.error_code or each.record_errors or each.tags or each.error_message is not None:
                return None
            parts.append(
                _APPENDED.pack(each.index, 0, each.base_offset, each.log_append_time_ms, each.log_start_offset, 1, 0, 0)
            )
        parts.append(b"\0")
    parts.append(_END.pack(response.throttle_time_ms, 0))
    return b"".join(parts)


END_TXN_KEY: Final = int(m.EndTxnRequest.API_KEY)
_FIRST_END_TXN_VERSION: Final = 3
_FIRST_WITH_IDENTITY_VERSION: Final = 5
_IDENTITY_AND_RESULT: Final = struct.Struct(">qh?")
# The throttle time and the error code, then no tags.
_ANSWER: Final = struct.Struct(">ihB")
# The same with the producer id and epoch of the next transaction.
_ANSWER_WITH_IDENTITY: Final = struct.Struct(">ihqhB")


def read_end_txn_request(frame: bytes | bytearray, position: int, version: int) -> Any | None:
    """Return the body at `position`; None if it is not in the plain form, which says nothing about its validity."""
    if version < _FIRST_END_TXN_VERSION:
        return None
    try:
        transactional_id, at = required_text(frame, position)
        producer_id, producer_epoch, committed = _IDENTITY_AND_RESULT.unpack_from(frame, at)
        end_of_struct(frame, at + _IDENTITY_AND_RESULT.size)
    except NOT_PLAIN:
        return None
    body = blank(m.EndTxnRequest, version)
    body.transactional_id = transactional_id
    body.producer_id, body.producer_epoch, body.committed = producer_id, producer_epoch, committed
    return body


def encode_end_txn_response(response: Any, version: int) -> bytes | None:
    """Return the body of a response; None if it is not in the plain form."""
    if version < _FIRST_END_TXN_VERSION or response.tags:
        return None
    if version < _FIRST_WITH_IDENTITY_VERSION:
        return _ANSWER.pack(response.throttle_time_ms, response.error_code, 0)
    return _ANSWER_WITH_IDENTITY.pack(
        response.throttle_time_ms, response.error_code, response.producer_id, response.producer_epoch, 0
    )
