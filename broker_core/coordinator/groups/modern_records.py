"""What the records of consumer groups in `__consumer_offsets` and of the groups of features have in common.

A group has many records, one type for each kind of fact, so that a heartbeat writes only what has changed. All values
are flexible version 0.
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import FieldReader, append_tag, int16, int32, int64, string
from broker_core.errors import DamageError

_VERSION: Final = int16(0)
# The only tag that values have.
TAG: Final = 0

Kind = TypeVar("Kind", bound=IntEnum)


class RecordKey(NamedTuple, Generic[Kind]):
    """The key of a record about a group, or about a part of it: a member or a regular expression."""

    kind: Kind
    group_id: str
    part: str = ""


class TargetEpoch(NamedTuple):
    """The group epoch that the target assignment was computed for, and the time."""

    epoch: int
    timestamp_ms: int = 0


class RecordFormat(Generic[Kind]):
    """The records of one type of group; `with_part` are the kinds of key that name a part of the group."""

    def __init__(
        self,
        group_type: str,
        *,
        group_epoch: Kind,
        with_part: Collection[Kind],
        writers: Mapping[Kind, Callable[[Any], bytes]],
        readers: Mapping[Kind, Callable[[FieldReader], Any]],
    ) -> None:
        self.group_type: Final = group_type
        # The first record of a group; its tombstone is the last.
        self.group_epoch: Final = group_epoch
        self.key_types: Final = frozenset(readers)
        self._kind: Final = type(group_epoch)
        self._with_part: Final = frozenset(with_part)
        self._writers = writers
        self._readers = readers

    def with_writers(self, writers: Mapping[Kind, Callable[[Any], bytes]]) -> Self:
        return type(self)(
            self.group_type,
            group_epoch=self.group_epoch,
            with_part=self._with_part,
            writers={**self._writers, **writers},
            readers=self._readers,
        )

    def record(self, key: RecordKey[Kind], value: Any) -> JournalRecord:
        """Build the record of a value, or with None its tombstone."""
        data = int16(key.kind) + string(key.group_id)
        if key.kind in self._with_part:
            data += string(key.part)
        return JournalRecord(data, None if value is None else _VERSION + self._writers[key.kind](value))

    def read_key(self, data: bytes) -> RecordKey[Kind]:
        fields = FieldReader(data)
        kind = self._kind(fields.int16())
        group_id = fields.string()
        return RecordKey(kind, group_id, fields.string() if kind in self._with_part else "")

    def read_value(self, kind: Kind, data: bytes) -> Any:
        """Read a value; raise `DamageError` for an unknown version."""
        fields = FieldReader(data, flexible=True)
        version = fields.int16()
        if version != 0:
            raise DamageError(f"a {self.group_type} group's {kind.name} has version {version}; known is 0")
        return self._readers[kind](fields)


def tags(value: bytes | None) -> bytes:
    """Encode the tagged fields of a structure that has at most one; None leaves it out."""
    if value is None:
        return b"\0"
    data = bytearray(b"\1")
    append_tag(data, TAG, value)
    return bytes(data)


def write_target_epoch(value: TargetEpoch) -> bytes:
    return int32(value.epoch) + tags(int64(value.timestamp_ms) if value.timestamp_ms else None)


def write_epoch_alone(value: Any) -> bytes:
    """Encode the value of an epoch without the fields that came later."""
    return int32(value.epoch) + tags(None)


def read_target_epoch(fields: FieldReader) -> TargetEpoch:
    epoch, tagged = fields.int32(), fields.tags()
    return TargetEpoch(epoch, FieldReader(tagged[TAG]).int64() if TAG in tagged else 0)
