"""The records of share groups in `__consumer_offsets`, in Kafka's format (KIP-932)."""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import Partitions, TopicIdPartition, partitions_by_topic
from broker_core.coordinator.groups.modern_records import RecordFormat, read_target_epoch, write_target_epoch
from broker_core.coordinator.record_fields import (
    FieldReader,
    compact_int32s,
    compact_length,
    compact_string,
    int8,
    int32,
    int64,
)

_NO_TAGS: Final = b"\0"
_STABLE: Final = 0
_UUID_BYTES: Final = 16


class RecordType(IntEnum):
    """The key types."""

    MEMBER = 10
    GROUP_EPOCH = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


class Subscription(NamedTuple):
    """A member's identity and subscription; the topics are sorted."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class GroupEpoch(NamedTuple):
    """The group epoch, with a hash of the topics to detect changes."""

    epoch: int = 1
    metadata_hash: int = 0


class Current(NamedTuple):
    """A member's assignment, with its epoch and the one before."""

    member_epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = frozenset()


class NamedPartitions(NamedTuple):
    """The name of a topic, which is known here by its id, and some of its partitions."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """The partitions whose state the share coordinator keeps for the group, or is about to keep or to delete."""

    initializing: Mapping[UUID, NamedPartitions] = {}
    initialized: Mapping[UUID, NamedPartitions] = {}
    deleting: Mapping[UUID, str] = {}


def _write_member(value: Subscription) -> bytes:
    return b"".join(
        (
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_length(len(value.topics)),
            *map(compact_string, value.topics),
        )
    )


def _read_member(fields: FieldReader) -> Subscription:
    return Subscription(
        fields.nullable_string(),
        fields.string(),
        fields.string(),
        tuple(fields.string() for _ in range(fields.length())),
    )


def _write_partitions(value: Collection[TopicIdPartition]) -> bytes:
    topics = partitions_by_topic(value)
    return compact_length(len(topics)) + b"".join(
        topic_id.bytes + compact_int32s(partitions) + _NO_TAGS for topic_id, partitions in topics.items()
    )


def _read_partitions(fields: FieldReader) -> Partitions:
    found = set()
    for _ in range(fields.length()):
        topic_id = UUID(bytes=fields.take(_UUID_BYTES))
        found |= {TopicIdPartition(topic_id, fields.int32()) for _ in range(fields.length())}
        fields.skip_tags()
    return frozenset(found)


def _write_current(value: Current) -> bytes:
    return int32(value.member_epoch) + int32(value.previous_epoch) + int8(_STABLE) + _write_partitions(value.assigned)


def _read_current(fields: FieldReader) -> Current:
    member_epoch, previous_epoch, _ = fields.int32(), fields.int32(), fields.int8()
    return Current(member_epoch, previous_epoch, _read_partitions(fields))


def _write_named(topics: Mapping[UUID, NamedPartitions]) -> bytes:
    return compact_length(len(topics)) + b"".join(
        topic_id.bytes + compact_string(named.name) + compact_int32s(sorted(named.partitions)) + _NO_TAGS
        for topic_id, named in topics.items()
    )


def _read_named(fields: FieldReader) -> dict[UUID, NamedPartitions]:
    topics = {}
    for _ in range(fields.length()):
        topic_id, name = UUID(bytes=fields.take(_UUID_BYTES)), fields.string()
        topics[topic_id] = NamedPartitions(name, frozenset(fields.int32() for _ in range(fields.length())))
        fields.skip_tags()
    return topics


def _write_state_partitions(value: StatePartitions) -> bytes:
    return (
        _write_named(value.initializing)
        + _write_named(value.initialized)
        + compact_length(len(value.deleting))
        + b"".join(topic_id.bytes + compact_string(name) + _NO_TAGS for topic_id, name in value.deleting.items())
    )


def _read_state_partitions(fields: FieldReader) -> StatePartitions:
    initializing, initialized, deleting = _read_named(fields), _read_named(fields), {}
    for _ in range(fields.length()):
        topic_id = UUID(bytes=fields.take(_UUID_BYTES))
        deleting[topic_id] = fields.string()
        fields.skip_tags()
    return StatePartitions(initializing, initialized, deleting)


def _untagged(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: write(value) + _NO_TAGS


SHARE_RECORDS: Final = RecordFormat(
    "share",
    group_epoch=RecordType.GROUP_EPOCH,
    with_part=(RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT),
    writers={
        RecordType.MEMBER: _untagged(_write_member),
        RecordType.GROUP_EPOCH: _untagged(lambda value: int32(value.epoch) + int64(value.metadata_hash)),
        RecordType.TARGET_EPOCH: write_target_epoch,
        RecordType.TARGET: _untagged(_write_partitions),
        RecordType.CURRENT: _untagged(_write_current),
        RecordType.STATE_PARTITIONS: _untagged(_write_state_partitions),
    },
    readers={
        RecordType.MEMBER: _read_member,
        RecordType.GROUP_EPOCH: lambda fields: GroupEpoch(fields.int32(), fields.int64()),
        RecordType.TARGET_EPOCH: read_target_epoch,
        RecordType.TARGET: _read_partitions,
        RecordType.CURRENT: _read_current,
        RecordType.STATE_PARTITIONS: _read_state_partitions,
    },
)
