"""Read from Metadata answers what a reader of topics needs: names first, and only of topics that are wanted the rest.

A cluster's topics can only be listed with all their partitions. kafka-python makes an object of each partition, which
takes seconds where there are a hundred thousand of them; here those of other topics are stepped over.
"""

import struct
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from broker_core.types import LONGEST_STRING_BYTES
from broker_core.wire.layout import MalformedLayout, check_body

# The first with compact lengths and tagged fields; Apache Kafka 2.4 has it.
_FIRST_VERSION: Final = 9
_FIRST_VERSION_WITH_IDS: Final = 10
_ERROR_CODE: Final = struct.Struct(">h")
_OPERATIONS_BYTES: Final = 4
_PARTITION: Final = struct.Struct(">hiii")
_NO_TOPICS: Final = b"\x01"
_LAST_SHORT_LENGTH: Final = 0x7F
_LONGEST_VARINT_BYTES: Final = 5


class PartitionLeader(NamedTuple):
    """Say who leads a partition; the leader is -1 while there is none."""

    partition: int
    leader_id: int
    leader_epoch: int


class TopicAnswer(NamedTuple):
    """Describe one topic; the id is None on brokers older than 2.8."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    error_code: int
    leaders: list[PartitionLeader]


class TopicsAnswer:
    """The topics that were wanted of one answer, and the answer without its topics."""

    def __init__(self, cluster: Any, topics: list[TopicAnswer]) -> None:
        self.cluster = cluster
        self.topics = topics

    @property
    def throttle_time_ms(self) -> int:
        """Return how long the broker wants to be left in peace."""
        return int(self.cluster.throttle_time_ms)


class TopicsRequest(MetadataRequest, init=False):  # type: ignore[misc, call-arg]
    """Ask for topics (None: all of them), and read of the answer those whose names are wanted."""

    def __init__(self, topics: Collection[str] | None, wanted: Callable[[str], bool]) -> None:
        super().__init__(
            topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        self._wanted = wanted

    def read_answer(self, version: int, body: memoryview) -> TopicsAnswer:
        """Read the body of an answer; raises what an answer reader takes for malformed."""
        if version < _FIRST_VERSION:
            return self._read_old(version, body)
        data = bytes(body)
        start = _skip_brokers(data)
        topics, end = self._read_topics(data, start, version)
        rest = memoryview(data[:start] + _NO_TOPICS + data[end:])
        check_body(MetadataResponse, version, rest)
        return TopicsAnswer(MetadataResponse[version].decode(rest), topics)

    def _read_old(self, version: int, body: memoryview) -> TopicsAnswer:
        check_body(MetadataResponse, version, body)
        response = MetadataResponse[version].decode(body)
        topics = [
            TopicAnswer(
                each.name, None, bool(each.is_internal), each.error_code,
                [PartitionLeader(part.partition_index, part.leader_id, part.leader_epoch) for part in each.partitions],
            )
            for each in response.topics if self._wanted(each.name)
        ]
        response.topics = []
        return TopicsAnswer(response, topics)

    def _read_topics(self, data: bytes, position: int, version: int) -> tuple[list[TopicAnswer], int]:
        topics = []
        id_bytes = 16 if version >= _FIRST_VERSION_WITH_IDS else 0
        count, position = _count(data, position)
        # A count that lies is found out where the bytes end.
        for _ in range(count):
            (error_code,) = _ERROR_CODE.unpack_from(data, position)
            name, position = _text(data, position + _ERROR_CODE.size)
            topic_id = UUID(bytes=data[position : position + id_bytes]) if id_bytes else None
            is_internal = bool(data[position + id_bytes])
            position += id_bytes + 1
            if name is not None and self._wanted(name):
                leaders, position = _partitions(data, position)
                known_id = topic_id if topic_id is not None and topic_id.int else None
                topics.append(TopicAnswer(name, known_id, is_internal, error_code, leaders))
            else:
                position = _skip_partitions(data, position)
            position = _skip_tags(data, position + _OPERATIONS_BYTES)
        return topics, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    if value <= _LAST_SHORT_LENGTH:
        return value, position + 1
    value = 0
    for index in range(_LONGEST_VARINT_BYTES):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte <= _LAST_SHORT_LENGTH:
            return value, position + index + 1
    raise MalformedLayout("a length does not end")


def _count(data: bytes, position: int) -> tuple[int, int]:
    """Read how many items an array has that may not be null."""
    count, position = _varint(data, position)
    if count == 0:
        raise MalformedLayout("an array is null")
    return count - 1, position


def _skip(data: bytes, position: int, size_bytes: int) -> int:
    if size_bytes > len(data) - position:
        raise MalformedLayout(f"a field takes {size_bytes} bytes where {len(data) - position} are left")
    return position + size_bytes


def _text(data: bytes, position: int) -> tuple[str | None, int]:
    size_bytes, position = _varint(data, position)
    if size_bytes == 0:
        return None, position
    if size_bytes - 1 > LONGEST_STRING_BYTES:
        raise MalformedLayout(f"a string has {size_bytes - 1} bytes")
    end = _skip(data, position, size_bytes - 1)
    return data[position:end].decode(), end


def _skip_tags(data: bytes, position: int) -> int:
    count, position = _varint(data, position)
    for _ in range(count):
        _, position = _varint(data, position)
        size_bytes, position = _varint(data, position)
        position = _skip(data, position, size_bytes)
    return position


def _skip_brokers(data: bytes) -> int:
    """Step over all that stands before the topics."""
    count, position = _count(data, 4)
    for _ in range(count):
        _, position = _text(data, position + 4)
        _, position = _text(data, position + 4)
        position = _skip_tags(data, position)
    _, position = _text(data, position)
    return position + 4


def _partitions(data: bytes, position: int) -> tuple[list[PartitionLeader], int]:
    leaders = []
    count, position = _count(data, position)
    for _ in range(count):
        _, partition, leader_id, leader_epoch = _PARTITION.unpack_from(data, position)
        leaders.append(PartitionLeader(partition, leader_id, leader_epoch))
        position = _skip_partition(data, position)
    return leaders, position


def _skip_partitions(data: bytes, position: int) -> int:
    count, position = _count(data, position)
    for _ in range(count):
        position = _skip_partition(data, position)
    return position


def _skip_partition(data: bytes, position: int) -> int:
    position += _PARTITION.size
    # Replicas, those in sync and those offline, each with its length plus one: nearly always one byte.
    for _ in range(3):
        count = data[position]
        if 0 < count <= _LAST_SHORT_LENGTH:
            position += 4 * count - 3
        else:
            count, position = _count(data, position)
            position = _skip(data, position, 4 * count)
    return position + 1 if data[position] == 0 else _skip_tags(data, position)
