"""The decoders of the two responses of readers that kafka-python makes too much of.

A cluster's topics can only be listed with all their partitions. kafka-python makes an object of each partition, which
takes seconds for a hundred thousand of them; here the partitions of other topics are skipped. The records are nearly
all of the response to a fetch, megabytes at a time. kafka-python copies them into bytes; here they are views of it.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from broker_core.errors import ErrorCode
from broker_core.types import AbortedTransaction
from broker_core.wire.compact_fields import LAST_SHORT_LENGTH, count, skip, skip_tags, text, varint
from broker_core.wire.layout import check_body
from spark_eos.client.metadata import FIRST_METADATA_VERSION, PartitionMetadata, TopicMetadata, topics_of

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiRequest

# The first version with compact lengths and tagged fields; Apache Kafka 2.4 supports it.
_FIRST_VERSION: Final = 9
_FIRST_VERSION_WITH_IDS: Final = 10
_ERROR_CODE: Final = struct.Struct(">h")
_OPERATIONS_BYTES: Final = 4
_PARTITION: Final = struct.Struct(">hiii")
_NO_TOPICS: Final = b"\x01"
# The first version with compact lengths and tagged fields; Apache Kafka 2.7 supports it.
_FIRST_FETCH: Final = 12
_FIRST_FETCH_WITH_IDS: Final = 13
_ID_BYTES: Final = 16
# Throttle time, error code, session id.
_HEAD: Final = struct.Struct(">ihi")
# Partition, error code, high watermark, last stable offset, log start offset.
_MARKS: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_PREFERRED_REPLICA_BYTES: Final = 4


class FilteredMetadata(NamedTuple):
    """The wanted topics of a response, without their replicas, and the response without any topics."""

    cluster: MetadataResponse
    topics: dict[str, TopicMetadata]

    @property
    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    @property
    def brokers(self) -> Sequence[object]:
        return self.cluster.brokers

    @property
    def throttle_time_ms(self) -> int:
        return int(self.cluster.throttle_time_ms)

    @property
    def error_code(self) -> int:
        """Return the error of the whole response, which then says nothing about topics."""
        return int(getattr(self.cluster, "error_code", ErrorCode.NONE))


class FilteredMetadataRequest(MetadataRequest, init=False):
    """A request for topics (None: all of them); of its response only topics with wanted names are decoded."""

    def __init__(self, topics: Collection[str] | None, wanted: Callable[[str], bool]) -> None:
        super().__init__(
            topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
            min_version=FIRST_METADATA_VERSION,
        )
        self._wanted = wanted

    def read_response(self, version: int, body: memoryview) -> FilteredMetadata:
        """Decode the body of a response; raises the exceptions that a response reader treats as malformed."""
        if version < _FIRST_VERSION:
            return self._read_old(version, body)
        data = bytes(body)
        start = _skip_brokers(data)
        topics, end = self._read_topics(data, start, version)
        rest = memoryview(data[:start] + _NO_TOPICS + data[end:])
        check_body(MetadataResponse, version, rest)
        return FilteredMetadata(MetadataResponse[version].decode(rest), topics)

    @classmethod
    def of(cls, topics: Collection[str] | None, wanted: Callable[[str], bool]) -> "ApiRequest[FilteredMetadata]":
        return cast("ApiRequest[FilteredMetadata]", cls(topics, wanted))

    def _read_old(self, version: int, body: memoryview) -> FilteredMetadata:
        check_body(MetadataResponse, version, body)
        response = MetadataResponse[version].decode(body)
        topics = {name: topic for name, topic in topics_of(response).items() if self._wanted(name)}
        response.topics = []
        return FilteredMetadata(response, topics)

    def _read_topics(self, data: bytes, position: int, version: int) -> tuple[dict[str, TopicMetadata], int]:
        topics = {}
        id_bytes = 16 if version >= _FIRST_VERSION_WITH_IDS else 0
        topic_count, position = count(data, position)
        # A wrong count is detected at the end of the bytes.
        for _ in range(topic_count):
            (error_code,) = _ERROR_CODE.unpack_from(data, position)
            name, position = text(data, position + _ERROR_CODE.size)
            topic_id = UUID(bytes=data[position : position + id_bytes]) if id_bytes else None
            is_internal = bool(data[position + id_bytes])
            position += id_bytes + 1
            if name is not None and self._wanted(name):
                partitions, position = _partitions(data, position)
                known_id = topic_id if topic_id is not None and topic_id.int else None
                topics[name] = TopicMetadata(name, known_id, is_internal, error_code, partitions)
            else:
                position = _skip_partitions(data, position)
            position = skip_tags(data, position + _OPERATIONS_BYTES)
        return topics, position


def _skip_brokers(data: bytes) -> int:
    broker_count, position = count(data, 4)
    for _ in range(broker_count):
        _, position = text(data, position + 4)
        _, position = text(data, position + 4)
        position = skip_tags(data, position)
    _, position = text(data, position)
    return position + 4


def _partitions(data: bytes, position: int) -> tuple[dict[int, PartitionMetadata], int]:
    partitions = {}
    partition_count, position = count(data, position)
    for _ in range(partition_count):
        error_code, partition, leader, leader_epoch = _PARTITION.unpack_from(data, position)
        partitions[partition] = PartitionMetadata(partition, leader, leader_epoch, error_code)
        position = _skip_partition(data, position)
    return partitions, position


def _skip_partitions(data: bytes, position: int) -> int:
    partition_count, position = count(data, position)
    for _ in range(partition_count):
        position = _skip_partition(data, position)
    return position


def _skip_partition(data: bytes, position: int) -> int:
    position += _PARTITION.size
    # Replicas, those in sync and those offline, each with its length plus one: nearly always one byte.
    for _ in range(3):
        length = data[position]
        if 0 < length <= LAST_SHORT_LENGTH:
            position += 4 * length - 3
        else:
            replica_count, position = count(data, position)
            position = skip(data, position, 4 * replica_count)
    return position + 1 if data[position] == 0 else skip_tags(data, position)


class FetchedPartition(NamedTuple):
    """A broker's response about a partition, and its records."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted_transactions: list[AbortedTransaction]
    records: memoryview


class FetchedTopic(NamedTuple):
    """The partitions of a topic, which old versions name and new ones identify."""

    topic: str | None
    topic_id: UUID | None
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
        if version < _FIRST_FETCH:
            check_body(FetchResponse, version, body)
            return FetchResponse[version].decode(body)
        throttle_time_ms, error_code, _ = _HEAD.unpack_from(body)
        topics = []
        topic_count, position = count(body, _HEAD.size)
        for _ in range(topic_count):
            topic, position = _fetched_topic(body, position, version)
            topics.append(topic)
        skip_tags(body, position)
        return UncopiedFetch(throttle_time_ms, error_code, topics)


def _fetched_topic(body: memoryview, position: int, version: int) -> tuple[FetchedTopic, int]:
    name, topic_id = None, None
    if version >= _FIRST_FETCH_WITH_IDS:
        end = skip(body, position, _ID_BYTES)
        topic_id, position = UUID(bytes=bytes(body[position:end])), end
    else:
        name, position = text(body, position)
    partitions = []
    partition_count, position = count(body, position)
    for _ in range(partition_count):
        partition, position = _fetched_partition(body, position)
        partitions.append(partition)
    return FetchedTopic(name, topic_id, partitions), skip_tags(body, position)


def _fetched_partition(body: memoryview, position: int) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, last_stable_offset, _ = _MARKS.unpack_from(body, position)
    aborted = []
    # Null means no transactions, or no records.
    length, position = varint(body, position + _MARKS.size)
    for _ in range(length - 1):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(body, position)))
        position = skip_tags(body, position + _ABORTED.size)
    length, start = varint(body, position + _PREFERRED_REPLICA_BYTES)
    end = skip(body, start, max(length - 1, 0))
    partition = FetchedPartition(index, error_code, high_watermark, last_stable_offset, aborted, body[start:end])
    return partition, skip_tags(body, end)
