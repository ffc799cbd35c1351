"""The fields of flexible messages (KIP-482), read one by one where kafka-python's objects are too slow.

Each function takes the bytes and a position, and returns the position after the field, preceded by the value if there
is one. Malformed data raises `MalformedLayout`, IndexError or `struct.error`.

A message in the plain form has known fields only, in a few bytes each. What is not in this form raises one of
`NOT_PLAIN`, and the schema decides.
"""

import struct
from typing import Any, Final, TypeAlias, TypeVar

from broker_core.types import LONGEST_STRING_BYTES
from broker_core.wire.layout import MalformedLayout

Bytes: TypeAlias = bytes | bytearray | memoryview

LAST_SHORT_LENGTH: Final = 0x7F


def varint(data: Bytes, position: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedLayout("a length is longer than 5 bytes")


def count(data: Bytes, position: int) -> tuple[int, int]:
    """Read the length of an array, or of bytes, that must not be null."""
    value, position = varint(data, position)
    if value == 0:
        raise MalformedLayout("an array is null")
    return value - 1, position


def skip(data: Bytes, position: int, size_bytes: int) -> int:
    """Skip bytes that must be present."""
    if size_bytes > len(data) - position:
        raise MalformedLayout(f"a field needs {size_bytes} bytes, but only {len(data) - position} are left")
    return position + size_bytes


def text(data: Bytes, position: int) -> tuple[str | None, int]:
    """Read a string; return None for null."""
    size_bytes, position = varint(data, position)
    if size_bytes == 0:
        return None, position
    if size_bytes - 1 > LONGEST_STRING_BYTES:
        raise MalformedLayout(f"a string is {size_bytes - 1} bytes long")
    end = skip(data, position, size_bytes - 1)
    return str(data[position:end], "utf-8"), end


def skip_tags(data: Bytes, position: int) -> int:
    count, position = varint(data, position)
    for _ in range(count):
        _, position = varint(data, position)
        size_bytes, position = varint(data, position)
        position = skip(data, position, size_bytes)
    return position


Message = TypeVar("Message")


class NotPlain(Exception):
    """The end of reading by hand: the schema has to decide."""


NOT_PLAIN: Final = (NotPlain, MalformedLayout, IndexError, struct.error, UnicodeDecodeError)


def blank(kind: type[Message], version: int | None) -> Message:
    """Return a message without fields, as kafka-python's decoder makes it; its constructor takes 2 µs."""
    message = object.__new__(kind)
    slots: Any = message
    slots._version, slots.tags, slots.unknown_tags = version, None, None
    return message


def blank_response(kind: type[Message]) -> Message:
    """Return a response without fields, which the schema can write too."""
    response = blank(kind, None)
    slots: Any = response
    slots._header = None
    return response


def required_text(frame: bytes | bytearray, at: int) -> tuple[str, int]:
    """Return a string that must not be null, and the position after it."""
    found, at = text(frame, at)
    if found is None:
        raise NotPlain
    return found, at


def end_of_struct(frame: bytes | bytearray, at: int) -> int:
    if frame[at]:
        raise NotPlain
    return at + 1


def compact_length(size: int) -> bytes:
    size += 1
    if size < 0x80:
        return _ONE_BYTE[size]
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


_ONE_BYTE: Final = tuple(bytes((each,)) for each in range(0x80))
