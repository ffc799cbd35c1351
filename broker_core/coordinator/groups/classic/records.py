"""The records of completed generations in `__consumer_offsets`, in Kafka's format (rules B.3)."""

from typing import Final, NamedTuple

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import FieldReader, data_field, int16, int32, int64, string
from broker_core.errors import DamageError
from broker_core.types import NO_TIMESTAMP

GROUP_KEY_TYPE: Final = 2

_WRITTEN_VERSION: Final = 3
_NEWEST_VERSION: Final = 4


class RecordedMember(NamedTuple):
    """The recorded state of one member: its subscription and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """One completed generation of a group."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[RecordedMember, ...]


def group_record(group_id: str, metadata: GroupMetadata | None) -> JournalRecord:
    key = int16(GROUP_KEY_TYPE) + string(group_id)
    return JournalRecord(key, None if metadata is None else _encode(metadata))


def read_group_key(data: bytes) -> str:
    fields = FieldReader(data)
    fields.int16()
    return fields.string()


def read_group_metadata(data: bytes) -> GroupMetadata:
    """Read a value of any version that Kafka has written; raise `DamageError` for other versions."""
    version = FieldReader(data).int16()
    if not 0 <= version <= _NEWEST_VERSION:
        raise DamageError(f"group metadata has version {version}; known are 0 to {_NEWEST_VERSION}")
    fields = FieldReader(data, flexible=version == _NEWEST_VERSION)
    fields.int16()
    protocol_type = fields.string()
    generation_id = fields.int32()
    protocol_name = fields.nullable_string()
    leader = fields.nullable_string()
    state_since_ms = fields.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(fields, version) for _ in range(fields.length()))
    return GroupMetadata(protocol_type, generation_id, protocol_name, leader, state_since_ms, members)


def _read_member(fields: FieldReader, version: int) -> RecordedMember:
    member_id = fields.string()
    group_instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else None
    session_timeout_ms = fields.int32()
    if rebalance_timeout_ms is None:
        rebalance_timeout_ms = session_timeout_ms
    subscription, assignment = fields.data(), fields.data()
    fields.skip_tags()
    return RecordedMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _encode(metadata: GroupMetadata) -> bytes:
    parts = [
        int16(_WRITTEN_VERSION),
        string(metadata.protocol_type),
        int32(metadata.generation_id),
        string(metadata.protocol_name),
        string(metadata.leader),
        int64(metadata.state_since_ms),
        int32(len(metadata.members)),
    ]
    parts += [_encode_member(member) for member in metadata.members]
    return b"".join(parts)


def _encode_member(member: RecordedMember) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            int32(member.rebalance_timeout_ms),
            int32(member.session_timeout_ms),
            data_field(member.subscription),
            data_field(member.assignment),
        )
    )
