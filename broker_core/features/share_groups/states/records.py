"""The records of `__share_group_state`, in Kafka's format (KIP-932): snapshots, and updates of the last snapshot.

Values are flexible version 0. The number of completed deliveries is a tagged field (KIP-1226).
"""

from enum import IntEnum
from typing import Final, NamedTuple, cast
from uuid import UUID

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    array,
    int16,
    int32,
    string,
    struct_of,
    tag,
    tagged,
)
from broker_core.errors import DamageError
from broker_core.features.share_groups.states.state import UNINITIALIZED, SharePartitionKey, ShareState, StateBatch

_VERSION: Final = int16(0)
_UUID_BYTES: Final = 16


class RecordType(IntEnum):
    """The key types."""

    SNAPSHOT = 0
    UPDATE = 1


class ShareUpdate(NamedTuple):
    """The fields of an update; it has no state epoch and no times."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int


_BATCHES: Final = array(tagged(struct_of(StateBatch, INT64, INT64, INT8, INT16)))
_COMPLETE_COUNT: Final = tag(INT32, absent=UNINITIALIZED)
_SNAPSHOT: Final = struct_of(ShareState, INT32, INT32, INT32, INT64, INT64, INT64, _BATCHES, _COMPLETE_COUNT)
_UPDATE: Final = struct_of(ShareUpdate, INT32, INT32, INT64, _BATCHES, _COMPLETE_COUNT)


def snapshot_record(key: SharePartitionKey, state: ShareState | None) -> JournalRecord:
    """Build the record of a whole state, or with None its tombstone."""
    if state is None:
        return JournalRecord(_key(RecordType.SNAPSHOT, key), None)
    return JournalRecord(_key(RecordType.SNAPSHOT, key), _VERSION + _SNAPSHOT.write(state))


def update_record(key: SharePartitionKey, update: ShareUpdate) -> JournalRecord:
    return JournalRecord(_key(RecordType.UPDATE, key), _VERSION + _UPDATE.write(update))


def read_key(data: bytes) -> tuple[RecordType, SharePartitionKey] | None:
    """Read a key; None for a type that this coordinator does not know."""
    fields = FieldReader(data)
    kind = fields.int16()
    if kind not in tuple(RecordType):
        return None
    group_id = fields.string()
    topic_id = UUID(bytes=fields.take(_UUID_BYTES))
    return RecordType(kind), SharePartitionKey(group_id, topic_id, fields.int32())


def read_snapshot(data: bytes) -> ShareState:
    return cast(ShareState, _SNAPSHOT.read(_open(data)))


def read_update(data: bytes) -> ShareUpdate:
    return cast(ShareUpdate, _UPDATE.read(_open(data)))


def _open(data: bytes) -> FieldReader:
    fields = FieldReader(data, flexible=True)
    version = fields.int16()
    if version != 0:
        raise DamageError(f"a record of a share partition has version {version}; known is 0")
    return fields


def _key(kind: RecordType, key: SharePartitionKey) -> bytes:
    return int16(kind) + string(key.group_id) + key.topic_id.bytes + int32(key.partition)
