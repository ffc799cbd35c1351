"""The offsets of groups: requests and answers, the store of one partition, and the format of records (rules B.3).

A transactional commit is kept separately, by producer, until the marker of its transaction: a commit marker
applies it unless a plain commit was recorded later, an abort marker drops it (KIP-98, rules E.2). Only the replay
of records calls the methods that change the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from broker_core.coordinator.groups.classic.requests import NO_GENERATION, UNKNOWN_MEMBER
from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import ID, FieldReader, compact_string, int16, int32, int64, string, tag
from broker_core.errors import DamageError, ErrorCode
from broker_core.types import NO_LEADER_EPOCH, NO_TIMESTAMP, ProducerIdentity, TopicPartition

AnswerT = TypeVar("AnswerT")
NO_OFFSET: int = -1


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition's offset in a commit."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A commit of offsets; with `producer`, as a part of that producer's open transaction (KIP-98, KIP-447).

    Leave `generation_id` at -1 and the ids empty for a reader that manages its partitions itself.
    `retention_ms` is the explicit retention of versions 2 to 4; -1 selects the broker's. Set
    `knows_member_epochs` for version 9 and later, in a transaction version 6: only these can carry the epoch of a
    consumer group's member.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetToCommit]
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    retention_ms: int = -1
    knows_member_epochs: bool = False
    producer: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The committed offset of one partition, and the topic's id at its commit, if known; offset -1 means none."""

    error: ErrorCode = ErrorCode.NONE
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OffsetsResult(Generic[AnswerT]):
    """The answer to a fetch or a deletion of offsets: an error of the whole group, or an answer for each partition."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, AnswerT] = field(default_factory=dict)


OFFSET_KEY_TYPES: Final = frozenset({0, 1})

_KEY_TYPE: Final = 1
_PLAIN_VERSION: Final = 3
_EXPLICIT_RETENTION_VERSION: Final = 1
_NEWEST_VERSION: Final = 4
_TOPIC_ID: Final = tag(ID, absent=None)


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
    topic_id = _TOPIC_ID.read(fields) if fields.flexible else None
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


def _encode_key(key: OffsetKey) -> bytes:
    topic, partition = key.topic_partition
    return int16(_KEY_TYPE) + string(key.group_id) + string(topic) + int32(partition)


def _encode_value(value: OffsetValue, with_topic_id: bool) -> bytes:
    """Encode version 4 or 3, or version 1 for an explicit retention, which has no leader epoch."""
    if value.expire_timestamp_ms == NO_TIMESTAMP and with_topic_id:
        head = int16(_NEWEST_VERSION) + int64(value.offset) + int32(value.leader_epoch)
        text = compact_string(value.metadata)
        return head + text + int64(value.commit_timestamp_ms) + _TOPIC_ID.write(value.topic_id)
    if value.expire_timestamp_ms == NO_TIMESTAMP:
        head = int16(_PLAIN_VERSION) + int64(value.offset) + int32(value.leader_epoch)
        return head + string(value.metadata) + int64(value.commit_timestamp_ms)
    head = int16(_EXPLICIT_RETENTION_VERSION) + int64(value.offset) + string(value.metadata)
    return head + int64(value.commit_timestamp_ms) + int64(value.expire_timestamp_ms)


class StoredOffset(NamedTuple):
    """A committed offset with the offset of its record, which decides which commit is later."""

    value: OffsetValue
    log_offset: int


class OffsetStore:
    """Committed and pending offsets."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        self._pending: dict[int, dict[OffsetKey, StoredOffset]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def committed(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        return self._committed.get(group_id, {})

    def is_pending(self, key: OffsetKey) -> bool:
        """Return whether an open transaction may still change this offset."""
        return key.topic_partition in self._open.get(key.group_id, {})

    def pending_partitions(self, group_id: str) -> list[TopicPartition]:
        return list(self._open.get(group_id, {}))

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def group_ids(self) -> list[str]:
        """Return every group that has an offset here, committed or pending."""
        return list(dict.fromkeys([*self._committed, *self._open]))

    def commit(self, key: OffsetKey, stored: StoredOffset) -> None:
        self._committed.setdefault(key.group_id, {})[key.topic_partition] = stored

    def commit_pending(self, producer_id: int, key: OffsetKey, stored: StoredOffset) -> None:
        """Keep a transactional commit until its marker; the last one for a key counts."""
        self._pending.setdefault(producer_id, {})[key] = stored
        self._open.setdefault(key.group_id, {}).setdefault(key.topic_partition, set()).add(producer_id)

    def forget(self, key: OffsetKey) -> None:
        group_offsets = self._committed.get(key.group_id, {})
        group_offsets.pop(key.topic_partition, None)
        if not group_offsets:
            self._committed.pop(key.group_id, None)
        for producer_id in tuple(self._open.get(key.group_id, {}).get(key.topic_partition, ())):
            del self._pending[producer_id][key]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
            self._close(producer_id, key)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply or drop the producer's pending offsets, if there are any."""
        for key, stored in self._pending.pop(producer_id, {}).items():
            self._close(producer_id, key)
            current = self.committed(key.group_id).get(key.topic_partition)
            if commit and (current is None or stored.log_offset > current.log_offset):
                self.commit(key, stored)

    def _close(self, producer_id: int, key: OffsetKey) -> None:
        partitions = self._open[key.group_id]
        partitions[key.topic_partition].discard(producer_id)
        if not partitions[key.topic_partition]:
            del partitions[key.topic_partition]
        if not partitions:
            del self._open[key.group_id]
