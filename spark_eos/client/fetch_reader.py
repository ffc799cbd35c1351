"""The decoder of fetch responses, which does not copy the records.

The records are nearly all of a response, megabytes at a time. kafka-python copies them into bytes; here they are views
of the response.
"""

import struct
from typing import Final, NamedTuple, TypeAlias

from kafka.protocol.consumer import FetchRequest, FetchResponse

from broker_core.types import AbortedTransaction
from broker_core.wire.compact_fields import count, skip, skip_tags, text, varint
from broker_core.wire.layout import check_body

# The first version with compact lengths and tagged fields; Apache Kafka 2.7 supports it.
_FIRST_VERSION: Final = 12
_FIRST_VERSION_WITH_IDS: Final = 13
_ID_BYTES: Final = 16
# Throttle time, error code, session id.
_HEAD: Final = struct.Struct(">ihi")
# Partition, error code, high watermark, last stable offset, log start offset.
_MARKS: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_PREFERRED_REPLICA_BYTES: Final = 4


class FetchedPartition(NamedTuple):
    """A broker's response about a partition, and its records."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted_transactions: list[AbortedTransaction]
    records: memoryview


class FetchedTopic(NamedTuple):
    """The partitions of a topic."""

    partitions: list[FetchedPartition]


# With the same names: brokers of old versions are answered by kafka-python.
AnyPartition: TypeAlias = FetchedPartition | FetchResponse.FetchableTopicResponse.PartitionData


class UncopiedFetch(NamedTuple):
    """The response to a fetch, with kafka-python's field names."""

    throttle_time_ms: int
    error_code: int
    responses: list[FetchedTopic]


class UncopiedFetchRequest(FetchRequest, init=False):
    """A fetch whose response is decoded without copying its records."""

    def read_response(self, version: int, body: memoryview) -> UncopiedFetch | FetchResponse:
        """Decode the body of a response; raises the exceptions that a response reader treats as malformed."""
        if version < _FIRST_VERSION:
            check_body(FetchResponse, version, body)
            return FetchResponse[version].decode(body)
        throttle_time_ms, error_code, _ = _HEAD.unpack_from(body)
        topics = []
        topic_count, position = count(body, _HEAD.size)
        for _ in range(topic_count):
            topic, position = _topic(body, position, version)
            topics.append(topic)
        skip_tags(body, position)
        return UncopiedFetch(throttle_time_ms, error_code, topics)


def _topic(body: memoryview, position: int, version: int) -> tuple[FetchedTopic, int]:
    if version >= _FIRST_VERSION_WITH_IDS:
        position = skip(body, position, _ID_BYTES)
    else:
        _, position = text(body, position)
    partitions = []
    partition_count, position = count(body, position)
    for _ in range(partition_count):
        partition, position = _partition(body, position)
        partitions.append(partition)
    return FetchedTopic(partitions), skip_tags(body, position)


def _partition(body: memoryview, position: int) -> tuple[FetchedPartition, int]:
    _, error_code, high_watermark, last_stable_offset, _ = _MARKS.unpack_from(body, position)
    aborted = []
    # Null means no transactions, or no records.
    length, position = varint(body, position + _MARKS.size)
    for _ in range(length - 1):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(body, position)))
        position = skip_tags(body, position + _ABORTED.size)
    length, start = varint(body, position + _PREFERRED_REPLICA_BYTES)
    end = skip(body, start, max(length - 1, 0))
    partition = FetchedPartition(error_code, high_watermark, last_stable_offset, aborted, body[start:end])
    return partition, skip_tags(body, end)
