"""The records of completed generations in `__consumer_offsets`, in Kafka's format (rules B.3).

A member's subscription and assignment are bytes to the coordinator of a classic group. It reads and writes the consumer
protocol in them where a group moves between the protocols.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import INT32, FieldReader, Form, int16, int32, int64, string
from broker_core.errors import DamageError
from broker_core.types import NO_TIMESTAMP, TopicPartition

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


_TEXT: Final = Form(string, FieldReader.string)
_NULLABLE_TEXT: Final = Form(string, FieldReader.nullable_string)
_DATA: Final = Form(lambda data: int32(len(data)) + data, FieldReader.data)
# The fields of a member in the order of the record, and the first version that has them.
_MEMBER: Final[Mapping[str, tuple[Form, int]]] = {
    "member_id": (_TEXT, 0),
    "group_instance_id": (_NULLABLE_TEXT, 3),
    "client_id": (_TEXT, 0),
    "client_host": (_TEXT, 0),
    "rebalance_timeout_ms": (INT32, 1),
    "session_timeout_ms": (INT32, 0),
    "subscription": (_DATA, 0),
    "assignment": (_DATA, 0),
}


def _read_member(fields: FieldReader, version: int) -> RecordedMember:
    found: dict[str, Any] = {name: form.read(fields) for name, (form, since) in _MEMBER.items() if version >= since}
    fields.skip_tags()
    # Older versions have one timeout and no static members.
    return RecordedMember(**{"group_instance_id": None, "rebalance_timeout_ms": found["session_timeout_ms"]} | found)


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
    for member in metadata.members:
        parts += [form.write(value) for (form, _), value in zip(_MEMBER.values(), member, strict=True)]
    return b"".join(parts)


_NEWEST_EMBEDDED_VERSION: Final = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_NO_USER_DATA: Final = int32(-1)


class EmbeddedSubscription(NamedTuple):
    """A member's subscription; `owned` are the partitions that it keeps while it joins (cooperative assignors)."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None


class EmbeddedAssignment(NamedTuple):
    """A member's assignment, and whether the assignor added data of its own."""

    partitions: tuple[TopicPartition, ...] = ()
    has_user_data: bool = False


def read_subscription(data: bytes) -> EmbeddedSubscription:
    """Read a subscription; raise `DamageError` for one that cannot be read."""
    fields = FieldReader(data)
    version = _read_version(fields)
    topics = tuple(fields.string() for _ in range(fields.length()))
    fields.data()
    owned = _read_partitions(fields) if version >= _OWNED_SINCE else ()
    if version >= _GENERATION_SINCE:
        fields.int32()
    return EmbeddedSubscription(version, topics, owned, fields.nullable_string() if version >= _RACK_SINCE else None)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """Read an assignment; no bytes are no partitions. Raise `DamageError` for one that cannot be read."""
    if not data:
        return EmbeddedAssignment()
    fields = FieldReader(data)
    _read_version(fields)
    partitions = _read_partitions(fields)
    return EmbeddedAssignment(partitions, bool(fields.data()))


def write_assignment(partitions: Iterable[TopicPartition], version: int) -> bytes:
    """Encode an assignment in the version of the member's subscription, or in the newest that Kafka knows."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    listed = (string(topic) + int32(len(numbers)) + b"".join(map(int32, numbers)) for topic, numbers in topics.items())
    return int16(min(version, _NEWEST_EMBEDDED_VERSION)) + int32(len(topics)) + b"".join(listed) + _NO_USER_DATA


def _read_version(fields: FieldReader) -> int:
    version = fields.int16()
    if version < 0:
        raise DamageError(f"the embedded consumer protocol has no version {version}")
    return version


def _read_partitions(fields: FieldReader) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for _ in range(fields.length()):
        topic = fields.string()
        found += [TopicPartition(topic, fields.int32()) for _ in range(fields.length())]
    return tuple(found)
