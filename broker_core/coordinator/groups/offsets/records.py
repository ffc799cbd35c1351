"""The records of committed offsets in `__consumer_offsets`, in Kafka's format (rules B.3)."""

from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import FieldReader, append_tag, compact_string, int16, int32, int64, string
from broker_core.errors import DamageError
from broker_core.types import NO_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition

OFFSET_KEY_TYPES: Final = frozenset({0, 1})

_KEY_TYPE: Final = 1
_PLAIN_VERSION: Final = 3
_EXPLICIT_RETENTION_VERSION: Final = 1
_NEWEST_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_NO_TAGS: Final = b"\0"


class OffsetKey(NamedTuple):
    """The key of one committed offset."""

    group_id: str
    topic_partition: TopicPartition


class OffsetValue(NamedTuple):
    """One committed offset; `expire_timestamp_ms` is -1 unless the commit has a retention.

    `topic_id` is None in records of Kafka before 4.1, and with a retention.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID | None = None


def offset_record(key: OffsetKey, value: OffsetValue | None, *, with_topic_id: bool = True) -> JournalRecord:
    """Build the record of a commit, or the tombstone of a deleted offset; Kafka has topic ids since 4.1."""
    return JournalRecord(_encode_key(key), None if value is None else _encode_value(value, with_topic_id))


def read_offset_key(data: bytes) -> OffsetKey:
    fields = FieldReader(data)
    fields.int16()
    group_id = fields.string()
    topic = fields.string()
    return OffsetKey(group_id, TopicPartition(topic, fields.int32()))


def read_offset_value(data: bytes) -> OffsetValue:
    """Read a value of any version that Kafka has written; raise `DamageError` for other versions."""
    version = FieldReader(data).int16()
    if not 0 <= version <= _NEWEST_VERSION:
        raise DamageError(f"committed offset has version {version}; known are 0 to {_NEWEST_VERSION}")
    fields = FieldReader(data, flexible=version == _NEWEST_VERSION)
    fields.int16()
    offset = fields.int64()
    leader_epoch = fields.int32() if version >= _PLAIN_VERSION else NO_LEADER_EPOCH
    metadata = fields.string()
    commit_timestamp_ms = fields.int64()
    expire_timestamp_ms = fields.int64() if version == _EXPLICIT_RETENTION_VERSION else NO_TIMESTAMP
    topic_id = fields.tags().get(_TOPIC_ID_TAG) if fields.flexible else None
    return OffsetValue(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        UUID(bytes=topic_id) if topic_id is not None else None,
    )


def _encode_key(key: OffsetKey) -> bytes:
    topic, partition = key.topic_partition
    return int16(_KEY_TYPE) + string(key.group_id) + string(topic) + int32(partition)


def _encode_value(value: OffsetValue, with_topic_id: bool) -> bytes:
    """Encode version 4 or 3, or version 1 for an explicit retention, which has no leader epoch."""
    if value.expire_timestamp_ms == NO_TIMESTAMP and with_topic_id:
        head = int16(_NEWEST_VERSION) + int64(value.offset) + int32(value.leader_epoch)
        return head + compact_string(value.metadata) + int64(value.commit_timestamp_ms) + _tags(value.topic_id)
    if value.expire_timestamp_ms == NO_TIMESTAMP:
        head = int16(_PLAIN_VERSION) + int64(value.offset) + int32(value.leader_epoch)
        return head + string(value.metadata) + int64(value.commit_timestamp_ms)
    head = int16(_EXPLICIT_RETENTION_VERSION) + int64(value.offset) + string(value.metadata)
    return head + int64(value.commit_timestamp_ms) + int64(value.expire_timestamp_ms)


def _tags(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        return _NO_TAGS
    tags = bytearray(b"\1")
    append_tag(tags, _TOPIC_ID_TAG, topic_id.bytes)
    return bytes(tags)
