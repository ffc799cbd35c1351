"""What the records of consumer groups in `__consumer_offsets` and of the groups of features have in common.

A group has many records, one type for each kind of fact, so that a heartbeat writes only what has changed. All values
are flexible version 0.
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.record_fields import (
    INT32,
    INT64,
    NO_TAGS,
    FieldReader,
    Form,
    int16,
    int32,
    string,
    struct_of,
    tag,
)
from broker_core.errors import DamageError

_VERSION: Final = int16(0)

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
        self, group_type: str, *, group_epoch: Kind, with_part: Collection[Kind], forms: Mapping[Kind, Form]
    ) -> None:
        self.group_type: Final = group_type
        # The first record of a group; its tombstone is the last.
        self.group_epoch: Final = group_epoch
        self.key_types: Final = frozenset(forms)
        self._kind: Final = type(group_epoch)
        self._with_part: Final = frozenset(with_part)
        self._forms = forms

    def with_writers(self, writers: Mapping[Kind, Callable[[Any], bytes]]) -> Self:
        forms = {kind: form._replace(write=writers.get(kind, form.write)) for kind, form in self._forms.items()}
        return type(self)(self.group_type, group_epoch=self.group_epoch, with_part=self._with_part, forms=forms)

    def record(self, key: RecordKey[Kind], value: Any) -> JournalRecord:
        """Build the record of a value, or with None its tombstone."""
        data = int16(key.kind) + string(key.group_id)
        if key.kind in self._with_part:
            data += string(key.part)
        return JournalRecord(data, None if value is None else _VERSION + self._forms[key.kind].write(value))

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
        return self._forms[kind].read(fields)


TARGET_EPOCH: Final = struct_of(TargetEpoch, INT32, tag(INT64, absent=0))


def write_epoch_alone(value: Any) -> bytes:
    """Encode the value of an epoch without the fields that came later."""
    return int32(value.epoch) + NO_TAGS
