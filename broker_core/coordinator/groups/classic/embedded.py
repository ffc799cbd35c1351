"""The consumer protocol inside JoinGroup and SyncGroup: the subscription of a member, and its assignment.

To the coordinator of a classic group both are bytes. It reads and writes them where a group moves between the
protocols.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker_core.coordinator.record_fields import FieldReader, int16, int32, string
from broker_core.errors import DamageError
from broker_core.types import TopicPartition

_NEWEST_VERSION: Final = 3
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
    return int16(min(version, _NEWEST_VERSION)) + int32(len(topics)) + b"".join(listed) + _NO_USER_DATA


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
