"""The layout of messages: a body is measured against Kafka's schema before it is decoded.

kafka-python's decoder trusts its input: it counts to any number it reads, follows a varint that does not
end in quadratic time, copies what is left for each set of tagged fields, takes a length of -1 for null in any field,
and accepts strings of any length. So here every length has to fit into the rest of the message, only fields that the
schema declares nullable may be null, and a string has at most as many bytes as an int16 can count, since responses and
records could not repeat a longer one. Bytes after the body are ignored, as in Kafka.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from broker_core.types import LONGEST_STRING_BYTES

API_VERSIONS_KEY: Final = 18
_LENGTH: Final = struct.Struct(">i")
_SHORT_LENGTH: Final = struct.Struct(">h")
_LONGEST_VARINT_BYTES: Final = 5
# kafka-python copies all that follows a set of tagged fields, for each set that is not empty.
_MOST_COPIED_BYTES: Final = 1 << 30

# A function that skips one field: it takes the walk and a position, and returns the position after the field.
_Step = Callable[["_Walk", int], int]

# Computed once for each message class and version.
_plans: dict[tuple[str, int], _Step] = {}


class MalformedLayout(ValueError):
    """Bytes that do not match the schema."""


def check_body(kind: Any, version: int, body: memoryview) -> None:
    """Raise `MalformedLayout` when the body of a message class of kafka-python's does not fit its version."""
    key = (kind.name, version)
    if key not in _plans:
        flexible = kind.flexible_version_q(version)
        _plans[key] = _struct_step(kind._struct, version, compact=flexible, tagged=flexible)
    _plans[key](_Walk(body), 0)


def answer_has_tags(kind: Any, version: int) -> bool:
    """Return whether the header of a response ends with tagged fields.

    That of ApiVersions never does: its client does not know the broker's versions yet.
    """
    return bool(kind.flexible_version_q(version)) and kind.API_KEY != API_VERSIONS_KEY


def check_tags(data: bytes | bytearray | memoryview, position: int) -> int:
    """Return the end of the tagged fields at a position; raise `MalformedLayout` if there are none."""
    # Nearly every header says with one byte that it has no tagged fields.
    if position < len(data) and not data[position]:
        return position + 1
    return _walk_unknown_tags(_Walk(memoryview(data)), position)


class _Walk:
    """The walk over the bytes of one message, with the cost of its tagged fields so far."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data)
        self._copied_bytes = 0

    def skip(self, position: int, size_bytes: int, name: str) -> int:
        if size_bytes > self.end - position:
            raise MalformedLayout(f"{name} takes {size_bytes} bytes where {self.end - position} are left")
        return position + size_bytes

    def varint(self, position: int, name: str) -> tuple[int, int]:
        value = 0
        for index in range(_LONGEST_VARINT_BYTES):
            self.skip(position, index + 1, name)
            byte = self.data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, position + index + 1
        raise MalformedLayout(f"the length of {name} is unterminated")

    def copy(self, position: int) -> None:
        """Count the copy of the rest of the message that kafka-python will make."""
        self._copied_bytes += self.end - position
        if self._copied_bytes > _MOST_COPIED_BYTES:
            raise MalformedLayout("too many tagged fields")


def _fields_step(struct_field: Any, version: int, compact: bool, tagged: bool | None) -> _Step:
    steps: list[_Step] = []
    fixed: list[tuple[str, int]] = []

    def step_over_fixed() -> None:
        if fixed:
            names = fixed[0][0] if len(fixed) == 1 else f"{fixed[0][0]} to {fixed[-1][0]}"
            steps.append(_fixed_step(names, sum(size for _, size in fixed)))
            fixed.clear()

    for field in struct_field.untagged_fields(version):
        size = _fixed_size(field)
        if size is not None:
            fixed.append((field.name, size))
        else:
            step_over_fixed()
            steps.append(_step(field, version, compact, tagged))
    step_over_fixed()
    if tagged:
        steps.append(_tags_step(struct_field.tagged_fields(version), version))
    elif tagged is None:
        steps.append(_no_tags)

    def walk_fields(walk: _Walk, position: int) -> int:
        for step in steps:
            position = step(walk, position)
        return position

    return walk_fields


def _struct_step(struct_field: Any, version: int, compact: bool, tagged: bool | None) -> _Step:
    fields = _fields_step(struct_field, version, compact, tagged)
    if not struct_field.nullable_for_version_q(version):
        return fields

    def walk_nullable(walk: _Walk, position: int) -> int:
        behind = walk.skip(position, 1, struct_field.name)
        return behind if walk.data[position] == 0xFF else fields(walk, behind)

    return walk_nullable


def _step(field: Any, version: int, compact: bool, tagged: bool | None) -> _Step:
    nullable = field.nullable_for_version_q(version)
    if field.is_array() or field.is_struct_array():
        return _array_step(field, version, compact, tagged, nullable)
    if field.is_struct():
        return _struct_step(field, version, compact, tagged)
    return _sized_step(field.name, field.type_str == "string", compact, nullable)


def _fixed_size(field: Any) -> int | None:
    size = getattr(getattr(field, "_type", None), "size", None)
    return size if isinstance(size, int) else None


def _fixed_step(name: str, size_bytes: int) -> _Step:
    return lambda walk, position: walk.skip(position, size_bytes, name)


def _length(walk: _Walk, position: int, name: str, form: struct.Struct | None, nullable: bool) -> tuple[int, int]:
    """Read a length or count, -1 for null; `form` is None for a compact one."""
    if form is None:
        value, position = walk.varint(position, name)
        value -= 1
    else:
        behind = walk.skip(position, form.size, name)
        (value,) = form.unpack_from(walk.data, position)
        position = behind
    if value < -1 or (value == -1 and not nullable):
        raise MalformedLayout(f"{name} is null" if value == -1 else f"{name} has a length of {value}")
    return value, position


def _sized_step(name: str, is_text: bool, compact: bool, nullable: bool) -> _Step:
    form = None if compact else _SHORT_LENGTH if is_text else _LENGTH

    def walk_sized(walk: _Walk, position: int) -> int:
        size_bytes, position = _length(walk, position, name, form, nullable)
        if is_text and size_bytes > LONGEST_STRING_BYTES:
            raise MalformedLayout(f"{name} is a string of {size_bytes} bytes")
        return walk.skip(position, max(size_bytes, 0), name)

    return walk_sized


def _array_step(field: Any, version: int, compact: bool, tagged: bool | None, nullable: bool) -> _Step:
    form = None if compact else _LENGTH
    name, item = field.name, field.array_of
    size = _fixed_size(item)
    step = (
        _fields_step(item, version, compact, tagged)
        if field.is_struct_array()
        else (None if size is not None else _step(item, version, compact, tagged))
    )

    def walk_array(walk: _Walk, position: int) -> int:
        count, position = _length(walk, position, name, form, nullable)
        if step is None:
            return walk.skip(position, max(count, 0) * (size or 0), name)
        # An item has at least one byte, so a wrong count fails where the bytes end.
        for _ in range(count):
            position = step(walk, position)
        return position

    return walk_array


def _no_tags(walk: _Walk, position: int) -> int:
    behind = walk.skip(position, 1, "tagged fields")
    if walk.data[position]:
        raise MalformedLayout("tagged fields in a version that has none")
    return behind


def _tags_step(tagged_fields: Any, version: int) -> _Step:
    return _tags_walk({tag: (field.name, _tag_step(field, version)) for tag, field in tagged_fields._tags.items()})


def _tags_walk(known: dict[int, tuple[str, _Step]]) -> _Step:
    def walk_tags(walk: _Walk, position: int) -> int:
        start = position
        count, position = walk.varint(position, "tagged fields")
        if count:
            walk.copy(start)
        for _ in range(count):
            tag, position = walk.varint(position, "a tagged field")
            size_bytes, position = walk.varint(position, "a tagged field")
            behind = walk.skip(position, size_bytes, "a tagged field")
            if tag in known and known[tag][1](walk, position) != behind:
                raise MalformedLayout(f"{known[tag][0]} does not have the {size_bytes} bytes that its size gives")
            position = behind
        return position

    return walk_tags


def _tag_step(field: Any, version: int) -> _Step:
    size = _fixed_size(field)
    # Inside of tagged fields kafka-python knows no others.
    return _fixed_step(field.name, size) if size is not None else _step(field, version, compact=True, tagged=None)


_walk_unknown_tags: Final = _tags_walk({})
