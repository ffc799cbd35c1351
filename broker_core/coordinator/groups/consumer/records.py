"""The records of consumer groups in `__consumer_offsets`, in Kafka's format (KIP-848).

The tagged fields are those of Apache Kafka 4.3 and 4.4, which older readers skip.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.groups.modern_records import TAG, RecordFormat, read_target_epoch, tags, write_target_epoch
from broker_core.coordinator.record_fields import (
    FieldReader,
    compact_int32s,
    compact_length,
    compact_string,
    int8,
    int32,
    int64,
)

# The metadata of a member that uses the classic protocol is a tagged field, which Kafka writes even if it is null.
_NOT_CLASSIC: Final = b"\0"
_IS_CLASSIC: Final = b"\1"


class RecordType(IntEnum):
    """The key types; 4 is written only by Kafka 4.0, and its content is redundant."""

    GROUP_EPOCH = 3
    TOPIC_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGULAR_EXPRESSION = 16


class TopicIdPartition(NamedTuple):
    """A partition by topic id, which distinguishes topics created again under the same name."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]
# A partition with the member epoch at which it was assigned (KIP-1251).
Held = Mapping[TopicIdPartition, int]


class GroupEpoch(NamedTuple):
    """The group epoch, with a hash of the topics to detect changes."""

    epoch: int
    metadata_hash: int = 0


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol sent with its JoinGroup; protocols are (name, metadata) as it prefers."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """A member's identity and subscription; `classic` is set for a member that uses the classic protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None


class Current(NamedTuple):
    """A member's progress towards its target."""

    member_epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = {}  # noqa: RUF012 - a field of a tuple
    pending: Held = {}  # noqa: RUF012 - a field of a tuple


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, and the version of the metadata it was matched against."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


def partitions_by_topic(partitions: Collection[TopicIdPartition]) -> dict[UUID, list[int]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return topics


def _write_epoch(value: GroupEpoch) -> bytes:
    return int32(value.epoch) + tags(int64(value.metadata_hash) if value.metadata_hash else None)


def _read_epoch(fields: FieldReader) -> GroupEpoch:
    epoch, tagged = fields.int32(), fields.tags()
    return GroupEpoch(epoch, FieldReader(tagged[TAG]).int64() if TAG in tagged else 0)


def _write_member(value: Subscription) -> bytes:
    return b"".join(
        (
            compact_string(value.instance_id),
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_length(len(value.topics)),
            *map(compact_string, value.topics),
            compact_string(value.regex),
            int32(value.rebalance_timeout_ms),
            compact_string(value.server_assignor),
            tags(_write_classic(value.classic)),
        )
    )


def _write_classic(value: ClassicMetadata | None) -> bytes:
    if value is None:
        return _NOT_CLASSIC
    protocols = (
        compact_string(name) + compact_length(len(metadata)) + metadata + tags(None)
        for name, metadata in value.protocols
    )
    head = _IS_CLASSIC + int32(value.session_timeout_ms) + compact_length(len(value.protocols))
    return head + b"".join(protocols) + tags(None)


def _read_classic(data: bytes) -> ClassicMetadata | None:
    if data == _NOT_CLASSIC:
        return None
    fields = FieldReader(data, flexible=True)
    fields.unsigned_varint()
    session_timeout_ms, protocols = fields.int32(), []
    for _ in range(fields.length()):
        protocols.append((fields.string(), fields.data()))
        fields.skip_tags()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _read_member(fields: FieldReader) -> Subscription:
    subscription = Subscription(
        fields.nullable_string(),
        fields.nullable_string(),
        fields.string(),
        fields.string(),
        tuple(fields.string() for _ in range(fields.length())),
        fields.nullable_string() or "",
        fields.int32(),
        fields.nullable_string(),
    )
    tagged = fields.tags()
    return subscription._replace(classic=_read_classic(tagged[TAG])) if TAG in tagged else subscription


def _write_target(value: Partitions) -> bytes:
    topics = partitions_by_topic(value)
    return (
        compact_length(len(topics))
        + b"".join(topic_id.bytes + compact_int32s(partitions) + tags(None) for topic_id, partitions in topics.items())
        + tags(None)
    )


def _read_target(fields: FieldReader) -> Partitions:
    return frozenset(_read_held(fields))


def _write_held(held: Held, with_epochs: bool) -> bytes:
    topics = partitions_by_topic(held)
    return compact_length(len(topics)) + b"".join(
        topic_id.bytes
        + compact_int32s(partitions)
        + tags(compact_int32s([held[TopicIdPartition(topic_id, each)] for each in partitions]) if with_epochs else None)
        for topic_id, partitions in topics.items()
    )


def _read_held(fields: FieldReader) -> dict[TopicIdPartition, int]:
    """Read partitions with their epochs; records from before Kafka 4.3 have none, which counts as the first epoch."""
    held: dict[TopicIdPartition, int] = {}
    for _ in range(fields.length()):
        topic_id = UUID(bytes=fields.take(16))
        partitions = [fields.int32() for _ in range(fields.length())]
        tagged = fields.tags()
        epochs = FieldReader(tagged[TAG], flexible=True) if TAG in tagged else None
        count = epochs.length() if epochs else 0
        known = [epochs.int32() for _ in range(count)] if epochs and count == len(partitions) else [0] * len(partitions)
        held |= {
            TopicIdPartition(topic_id, partition): epoch for partition, epoch in zip(partitions, known, strict=True)
        }
    return held


def _write_current(value: Current, with_epochs: bool = True) -> bytes:
    return b"".join(
        (
            int32(value.member_epoch),
            int32(value.previous_epoch),
            int8(value.state),
            _write_held(value.assigned, with_epochs),
            _write_held(value.pending, with_epochs),
            tags(None),
        )
    )


def write_current_without_epochs(value: Current) -> bytes:
    """Encode a member's progress as Kafka does before 4.3."""
    return _write_current(value, with_epochs=False)


def _read_current(fields: FieldReader) -> Current:
    member_epoch, previous_epoch, state = fields.int32(), fields.int32(), fields.int8()
    known = state if state in tuple(MemberState) else MemberState.UNKNOWN
    return Current(member_epoch, previous_epoch, MemberState(known), _read_held(fields), _read_held(fields))


def _write_regex(value: ResolvedRegex) -> bytes:
    return b"".join(
        (
            compact_length(len(value.topics)),
            *map(compact_string, value.topics),
            int64(value.version),
            int64(value.timestamp_ms),
            tags(None),
        )
    )


def _read_regex(fields: FieldReader) -> ResolvedRegex:
    topics = tuple(fields.string() for _ in range(fields.length()))
    return ResolvedRegex(topics, fields.int64(), fields.int64())


CONSUMER_RECORDS: Final = RecordFormat(
    "consumer",
    group_epoch=RecordType.GROUP_EPOCH,
    with_part=(RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT, RecordType.REGULAR_EXPRESSION),
    writers={
        RecordType.GROUP_EPOCH: _write_epoch,
        RecordType.MEMBER: _write_member,
        RecordType.TARGET_EPOCH: write_target_epoch,
        RecordType.TARGET: _write_target,
        RecordType.CURRENT: _write_current,
        RecordType.REGULAR_EXPRESSION: _write_regex,
    },
    readers={
        RecordType.GROUP_EPOCH: _read_epoch,
        RecordType.TOPIC_METADATA: lambda _: (),
        RecordType.MEMBER: _read_member,
        RecordType.TARGET_EPOCH: read_target_epoch,
        RecordType.TARGET: _read_target,
        RecordType.CURRENT: _read_current,
        RecordType.REGULAR_EXPRESSION: _read_regex,
    },
)
