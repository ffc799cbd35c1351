"""The records of consumer groups in `__consumer_offsets`, in Kafka's format (KIP-848).

The tagged fields are those of Apache Kafka 4.3 and 4.4, which older readers skip.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.states import MemberState
from broker_core.coordinator.groups.modern_records import TARGET_EPOCH, RecordFormat
from broker_core.coordinator.record_fields import (
    BYTES,
    ID,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    FieldReader,
    Form,
    array,
    compact_string,
    struct_of,
    tag,
    tagged,
    tuple_of,
)


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


_BY_TOPIC: Final = array(tagged(tuple_of(ID, array(INT32))))
PARTITIONS: Final = Form(
    lambda value: _BY_TOPIC.write(partitions_by_topic(value).items()),
    lambda fields: frozenset(
        TopicIdPartition(topic_id, partition) for topic_id, found in _BY_TOPIC.read(fields) for partition in found
    ),
)
# Partitions with the epochs of KIP-1251, which Kafka does not write before 4.3.
_WITH_EPOCHS: Final = array(tuple_of(ID, array(INT32), tag(array(INT32), absent=None)))


def _write_held(held: Held) -> bytes:
    topics = partitions_by_topic(held)
    epochs = {topic_id: [held[TopicIdPartition(topic_id, each)] for each in topics[topic_id]] for topic_id in topics}
    return _WITH_EPOCHS.write([(topic_id, topics[topic_id], epochs[topic_id]) for topic_id in topics])


def _read_held(fields: FieldReader) -> dict[TopicIdPartition, int]:
    """Read partitions with their epochs; without one for each partition, all have the first epoch."""
    held: dict[TopicIdPartition, int] = {}
    for topic_id, partitions, epochs in _WITH_EPOCHS.read(fields):
        known = epochs if epochs is not None and len(epochs) == len(partitions) else [0] * len(partitions)
        held |= {TopicIdPartition(topic_id, each): epoch for each, epoch in zip(partitions, known, strict=True)}
    return held


def _read_state(fields: FieldReader) -> MemberState:
    state = fields.int8()
    return MemberState(state) if state in tuple(MemberState) else MemberState.UNKNOWN


def _current(held: Form) -> Form:
    return tagged(struct_of(Current, INT32, INT32, Form(INT8.write, _read_state), held, held))


_CLASSIC: Final = tagged(struct_of(ClassicMetadata, INT32, array(tagged(tuple_of(STRING, BYTES)))))
_NULLABLE_CLASSIC: Final = Form(
    lambda value: b"\0" if value is None else b"\1" + _CLASSIC.write(value),
    lambda fields: _CLASSIC.read(fields) if fields.unsigned_varint() else None,
)
# Kafka writes this field even if it is null.
_CLASSIC_TAG: Final = Form(tag(_NULLABLE_CLASSIC, absent=...).write, tag(_NULLABLE_CLASSIC, absent=None).read)
_SUBSCRIPTION: Final = struct_of(
    Subscription,
    NULLABLE_STRING,
    NULLABLE_STRING,
    STRING,
    STRING,
    array(STRING),
    Form(compact_string, lambda fields: fields.nullable_string() or ""),
    INT32,
    NULLABLE_STRING,
    _CLASSIC_TAG,
)
# Kafka's form before 4.3.
write_current_without_epochs: Final = _current(PARTITIONS).write

CONSUMER_RECORDS: Final = RecordFormat(
    "consumer",
    group_epoch=RecordType.GROUP_EPOCH,
    with_part=(RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT, RecordType.REGULAR_EXPRESSION),
    forms={
        RecordType.GROUP_EPOCH: struct_of(GroupEpoch, INT32, tag(INT64, absent=0)),
        # It is only deleted here.
        RecordType.TOPIC_METADATA: Form(lambda _: b"", lambda _: ()),
        RecordType.MEMBER: _SUBSCRIPTION,
        RecordType.TARGET_EPOCH: TARGET_EPOCH,
        RecordType.TARGET: tagged(PARTITIONS),
        RecordType.CURRENT: _current(Form(_write_held, _read_held)),
        RecordType.REGULAR_EXPRESSION: tagged(struct_of(ResolvedRegex, array(STRING), INT64, INT64)),
    },
)
