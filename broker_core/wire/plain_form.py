"""The parts of messages in the plain form: flexible, of known fields only, in a few bytes each.

The modules that read such messages by hand share them. What is not in this form raises `NotPlain`, `IndexError`,
`struct.error` or `UnicodeDecodeError`, and the schema decides.
"""

import struct
from typing import Any, Final, TypeVar

from broker_core.types import LONGEST_STRING_BYTES

Message = TypeVar("Message")


class NotPlain(Exception):
    """The end of reading by hand: the schema has to decide."""


NOT_PLAIN: Final = (NotPlain, IndexError, struct.error, UnicodeDecodeError)


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


def read_length(frame: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a length or count of at most four bytes, -1 for null, and the position after it."""
    byte = frame[at]
    if byte < 0x80:
        return byte - 1, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21):
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, at + 1
    raise NotPlain


def read_count(frame: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the number of elements of an array that must not be null, and the position after it."""
    count, at = read_length(frame, at)
    if count < 0:
        raise NotPlain
    return count, at


def read_text(frame: bytes | bytearray, at: int, size_bytes: int) -> tuple[str, int]:
    """Return a string that must not be null, and the position after it."""
    end = at + size_bytes
    if not 0 <= size_bytes <= LONGEST_STRING_BYTES or end > len(frame):
        raise NotPlain
    return frame[at:end].decode(), end


def end_of_struct(frame: bytes | bytearray, at: int) -> int:
    """Return the position after a structure without tagged fields."""
    if frame[at]:
        raise NotPlain
    return at + 1


def compact_length(size: int) -> bytes:
    """Return the bytes of a length or count."""
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
