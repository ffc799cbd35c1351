"""The records of `__share_group_state`, in Kafka's format (KIP-932): snapshots, and updates of the last snapshot.

Values are flexible version 0. The number of completed deliveries is a tagged field (KIP-1226).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import (
    FieldReader,
    append_tag,
    append_unsigned_varint,
    int8,
    int16,
    int32,
    int64,
    string,
)
from broker_core.errors import DamageError
from broker_core.features.share_groups.states.state import UNINITIALIZED, SharePartitionKey, ShareState, StateBatch

_VERSION: Final = int16(0)
_COMPLETE_COUNT_TAG: Final = 0
_UUID_BYTES: Final = 16


class RecordType(IntEnum):
    """The key types."""

    SNAPSHOT = 0
    UPDATE = 1


class RecordKey(NamedTuple):
    """The key of a record."""

    kind: RecordType
    share_partition: SharePartitionKey


class ShareUpdate(NamedTuple):
    """The fields of an update; it has no state epoch and no times."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


def snapshot_record(key: SharePartitionKey, state: ShareState | None) -> JournalRecord:
    """Build the record of a whole state, or with None its tombstone."""
    if state is None:
        return JournalRecord(_key(RecordType.SNAPSHOT, key), None)
    value = b"".join(
        (
            _VERSION,
            int32(state.snapshot_epoch),
            int32(state.state_epoch),
            int32(state.leader_epoch),
            int64(state.start_offset),
            int64(state.created_ms),
            int64(state.written_ms),
            _batches(state.batches),
            _complete_count(state.delivery_complete_count),
        )
    )
    return JournalRecord(_key(RecordType.SNAPSHOT, key), value)


def update_record(key: SharePartitionKey, update: ShareUpdate) -> JournalRecord:
    value = b"".join(
        (
            _VERSION,
            int32(update.snapshot_epoch),
            int32(update.leader_epoch),
            int64(update.start_offset),
            _batches(update.batches),
            _complete_count(update.delivery_complete_count),
        )
    )
    return JournalRecord(_key(RecordType.UPDATE, key), value)


def read_key(data: bytes) -> RecordKey | None:
    """Read a key; None for a type that this coordinator does not know."""
    fields = FieldReader(data)
    kind = fields.int16()
    if kind not in tuple(RecordType):
        return None
    group_id = fields.string()
    topic_id = UUID(bytes=fields.take(_UUID_BYTES))
    return RecordKey(RecordType(kind), SharePartitionKey(group_id, topic_id, fields.int32()))


def read_snapshot(data: bytes) -> ShareState:
    fields = _open(data)
    snapshot_epoch, state_epoch, leader_epoch = fields.int32(), fields.int32(), fields.int32()
    start_offset, created_ms, written_ms = fields.int64(), fields.int64(), fields.int64()
    batches = _read_batches(fields)
    return ShareState(
        start_offset,
        batches,
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        _read_complete_count(fields),
        created_ms,
        written_ms,
    )


def read_update(data: bytes) -> ShareUpdate:
    fields = _open(data)
    snapshot_epoch, leader_epoch, start_offset = fields.int32(), fields.int32(), fields.int64()
    batches = _read_batches(fields)
    return ShareUpdate(snapshot_epoch, leader_epoch, start_offset, _read_complete_count(fields), batches)


def _open(data: bytes) -> FieldReader:
    fields = FieldReader(data, flexible=True)
    version = fields.int16()
    if version != 0:
        raise DamageError(f"a record of a share partition has version {version}; known is 0")
    return fields


def _key(kind: RecordType, key: SharePartitionKey) -> bytes:
    return int16(kind) + string(key.group_id) + key.topic_id.bytes + int32(key.partition)


def _batches(batches: Iterable[StateBatch]) -> bytes:
    listed = list(batches)
    data = bytearray()
    append_unsigned_varint(data, len(listed) + 1)
    for each in listed:
        data += int64(each.first_offset) + int64(each.last_offset) + int8(each.delivery_state)
        data += int16(each.delivery_count) + b"\0"
    return bytes(data)


def _read_batches(fields: FieldReader) -> tuple[StateBatch, ...]:
    found = []
    for _ in range(fields.length()):
        found.append(StateBatch(fields.int64(), fields.int64(), fields.int8(), fields.int16()))
        fields.skip_tags()
    return tuple(found)


def _complete_count(count: int) -> bytes:
    if count == UNINITIALIZED:
        return b"\0"
    data = bytearray(b"\1")
    append_tag(data, _COMPLETE_COUNT_TAG, int32(count))
    return bytes(data)


def _read_complete_count(fields: FieldReader) -> int:
    tags = fields.tags()
    return FieldReader(tags[_COMPLETE_COUNT_TAG]).int32() if _COMPLETE_COUNT_TAG in tags else UNINITIALIZED
