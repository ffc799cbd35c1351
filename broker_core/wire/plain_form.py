"""The parts of messages in the plain form: flexible, of known fields only, in a few bytes each.

The modules that read such messages by hand share them. What is not in this form raises one of `NOT_PLAIN`, and the
schema decides.
"""

import struct
from typing import Any, Final, TypeVar

from broker_core.wire.compact_fields import text
from broker_core.wire.layout import MalformedLayout

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
