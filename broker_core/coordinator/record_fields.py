"""The fields of the coordinators' records, classic and flexible (rules B.1 and B.3), and forms of several fields."""

import struct
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.errors import DamageError

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


int8: Final[Callable[[int], bytes]] = _INT8.pack
int16: Final[Callable[[int], bytes]] = _INT16.pack
int32: Final[Callable[[int], bytes]] = _INT32.pack
int64: Final[Callable[[int], bytes]] = _INT64.pack


def string(text: str | None) -> bytes:
    """Encode a string of at most 32767 bytes; None is length -1."""
    if text is None:
        return int16(-1)
    data = text.encode()
    return int16(len(data)) + data


def unsigned_varint(value: int) -> bytes:
    """Encode a non-negative number as an unsigned varint (lengths and tags of flexible versions)."""
    data = bytearray()
    while value > 0x7F:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def compact_length(length: int) -> bytes:
    """Encode the length of a flexible array, string or bytes; None is -1."""
    return unsigned_varint(length + 1)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return compact_length(len(data)) + data


def compact_int32s(numbers: Collection[int]) -> bytes:
    return compact_length(len(numbers)) + b"".join(map(int32, numbers))


class FieldReader:
    """A reader of the fields of one record; malformed fields raise `DamageError`.

    With `flexible`, strings, bytes and arrays have the compact lengths of KIP-482; call `tags` at the end of a
    structure.
    """

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """Read the numbers of a format; four of them take 0.4 µs in one call, 1.0 µs in four."""
        try:
            values = form.unpack_from(self._data, self._position)
        except struct.error as error:
            raise DamageError(f"field {form.format} at byte {self._position} of {len(self._data)}: {error}") from error
        self._position += form.size
        return values

    def int8(self) -> int:
        return self.numbers(_INT8)[0]

    def int16(self) -> int:
        return self.numbers(_INT16)[0]

    def int32(self) -> int:
        return self.numbers(_INT32)[0]

    def int64(self) -> int:
        return self.numbers(_INT64)[0]

    def unsigned_varint(self) -> int:
        if self._position < len(self._data) and self._data[self._position] < 0x80:
            # Nearly all have one byte.
            self._position += 1
            return self._data[self._position - 1]
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DamageError(f"unsigned varint before byte {self._position} is longer than 5 bytes")

    def take(self, size_bytes: int) -> bytes:
        end = self._position + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise DamageError(f"{size_bytes} bytes wanted at byte {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def text(self, size_bytes: int) -> str:
        try:
            return self.take(size_bytes).decode()
        except UnicodeDecodeError as error:
            raise DamageError(f"text before byte {self._position} is not UTF-8: {error}") from error

    def nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1 if self.flexible else self.int16()
        return None if length < 0 else self.text(length)

    def string(self) -> str:
        """Read a string; null raises `DamageError`."""
        text = self.nullable_string()
        if text is None:
            raise DamageError(f"a string before byte {self._position} is null and must not be")
        return text

    def data(self) -> bytes:
        """Read bytes; null reads as empty."""
        return self.take(max(0, self.length()))

    def length(self) -> int:
        """Read the length of an array or of bytes, -1 for null."""
        return self.unsigned_varint() - 1 if self.flexible else self.int32()

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields; the caller uses those it knows and ignores the others."""
        found = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            found[tag] = self.take(self.unsigned_varint())
        return found

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a flexible structure; no effect on others."""
        if self.flexible:
            self.tags()


NO_TAGS: Final = b"\0"
# The only tag that structures have here.
_TAG: Final = 0


class Form(NamedTuple):
    """How one kind of value is written and read."""

    write: Callable[[Any], bytes]
    read: Callable[[FieldReader], Any]


INT8: Final = Form(int8, FieldReader.int8)
INT16: Final = Form(int16, FieldReader.int16)
INT32: Final = Form(int32, FieldReader.int32)
INT64: Final = Form(int64, FieldReader.int64)
STRING: Final = Form(compact_string, FieldReader.string)
NULLABLE_STRING: Final = Form(compact_string, FieldReader.nullable_string)
BYTES: Final = Form(lambda value: compact_length(len(value)) + value, FieldReader.data)
ID: Final = Form(lambda value: value.bytes, lambda fields: UUID(bytes=fields.take(16)))


def struct_of(make: Callable[..., Any], *parts: Form) -> Form:
    """Return the form of a tuple; its tags, if it has any, are its last part."""
    return Form(
        lambda value: b"".join([part.write(each) for part, each in zip(parts, value, strict=True)]),
        lambda fields: make(*[part.read(fields) for part in parts]),
    )


def tuple_of(*parts: Form) -> Form:
    return struct_of(lambda *values: values, *parts)


def array(item: Form) -> Form:
    """Return the form of a collection, which is read as a tuple."""
    return Form(
        lambda values: compact_length(len(values)) + b"".join(map(item.write, values)),
        lambda fields: tuple([item.read(fields) for _ in range(fields.length())]),
    )


def tagged(form: Form) -> Form:
    """Return the form with tags at the end, none when it is written."""

    def read(fields: FieldReader) -> Any:
        value = form.read(fields)
        fields.skip_tags()
        return value

    return Form(lambda value: form.write(value) + NO_TAGS, read)


def tag(form: Form, *, absent: Any) -> Form:
    """Return the form of the tags of a structure that has one; it is left out for the value `absent`."""

    def write(value: Any) -> bytes:
        if value == absent:
            return NO_TAGS
        data = form.write(value)
        return bytes((1, _TAG)) + unsigned_varint(len(data)) + data

    def read(fields: FieldReader) -> Any:
        found = fields.tags().get(_TAG)
        return absent if found is None else form.read(FieldReader(found, flexible=True))

    return Form(write, read)
