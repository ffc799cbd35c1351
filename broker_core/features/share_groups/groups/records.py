"""The records of share groups in `__consumer_offsets`, in Kafka's format (KIP-932)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.groups.consumer.records import PARTITIONS, GroupEpoch, Partitions
from broker_core.coordinator.groups.modern_records import TARGET_EPOCH, RecordFormat
from broker_core.coordinator.record_fields import (
    ID,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    FieldReader,
    Form,
    array,
    struct_of,
    tagged,
    tuple_of,
)

_STABLE: Final = 0


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


def _read_assigned(fields: FieldReader) -> Partitions:
    # The state, which is always the same.
    fields.int8()
    found: Partitions = PARTITIONS.read(fields)
    return found


_NAMED_TOPICS: Final = array(tagged(tuple_of(ID, STRING, array(INT32))))
_NAMED: Final = Form(
    lambda value: _NAMED_TOPICS.write([(each, named.name, sorted(named.partitions)) for each, named in value.items()]),
    lambda fields: {each: NamedPartitions(name, frozenset(found)) for each, name, found in _NAMED_TOPICS.read(fields)},
)
_NAME_PAIRS: Final = array(tagged(tuple_of(ID, STRING)))
_NAMES: Final = Form(lambda value: _NAME_PAIRS.write(value.items()), lambda fields: dict(_NAME_PAIRS.read(fields)))
_ASSIGNED: Final = Form(lambda value: INT8.write(_STABLE) + PARTITIONS.write(value), _read_assigned)
SHARE_RECORDS: Final = RecordFormat(
    "share",
    group_epoch=RecordType.GROUP_EPOCH,
    with_part=(RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT),
    forms={
        RecordType.MEMBER: tagged(struct_of(Subscription, NULLABLE_STRING, STRING, STRING, array(STRING))),
        RecordType.GROUP_EPOCH: tagged(struct_of(GroupEpoch, INT32, INT64)),
        RecordType.TARGET_EPOCH: TARGET_EPOCH,
        RecordType.TARGET: tagged(PARTITIONS),
        RecordType.CURRENT: tagged(struct_of(Current, INT32, INT32, _ASSIGNED)),
        RecordType.STATE_PARTITIONS: tagged(struct_of(StatePartitions, _NAMED, _NAMED, _NAMES)),
    },
)
