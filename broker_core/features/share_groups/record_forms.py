"""The forms of values in the records of share groups, by which their parts are written and read (KIP-482)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker_core.coordinator.record_fields import FieldReader, compact_length, compact_string, int8, int16, int32, int64

NO_TAGS: Final = b"\0"


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
ID: Final = Form(lambda value: value.bytes, lambda fields: UUID(bytes=fields.take(16)))


def struct(make: Callable[..., Any], *parts: Form) -> Form:
    return Form(
        lambda value: b"".join([part.write(each) for part, each in zip(parts, value, strict=True)]),
        lambda fields: make(*[part.read(fields) for part in parts]),
    )


def tagged(form: Form) -> Form:
    """Return the form with tags at the end, none when it is written."""

    def read(fields: FieldReader) -> Any:
        value = form.read(fields)
        fields.skip_tags()
        return value

    return Form(lambda value: form.write(value) + NO_TAGS, read)


def array(item: Form) -> Form:
    """Return the form of a collection, which is read as a tuple."""
    return Form(
        lambda values: compact_length(len(values)) + b"".join(map(item.write, values)),
        lambda fields: tuple([item.read(fields) for _ in range(fields.length())]),
    )
