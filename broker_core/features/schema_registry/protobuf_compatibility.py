"""What differs between two Protobuf schemas, and which differences a reader of older messages survives.

The rules are those of Confluent's documentation, "Schema Evolution and Compatibility for Schema Registry", and of the
tests of Confluent Schema Registry, whose names for differences are used.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2 as pb

Files = dict[str, pb.FileDescriptorProto]

_F = pb.FieldDescriptorProto
# All other differences are incompatible.
COMPATIBLE = frozenset(
    {
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    }
)
# Types whose encodings are interchangeable; see "Updating A Message Type" in protobuf's language guide.
_KINDS = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "fixed64"),
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
}


class _Message(NamedTuple):
    """A message with its name inside its package."""

    local_name: str
    descriptor: pb.DescriptorProto


class Differences:
    """The differences between an earlier schema and a later one, each with the path of its place."""

    def __init__(self, original_files: Files, update_files: Files) -> None:
        self._original, self._update = _messages(original_files), _messages(update_files)
        self.found: list[tuple[str, str]] = []
        self._path: list[str] = []
        # Messages may contain themselves.
        self._compared: set[tuple[str, str]] = set()

    def between(self, original: pb.FileDescriptorProto, update: pb.FileDescriptorProto) -> "Differences":
        if original.package != update.package:
            self._add("PACKAGE_CHANGED")
        self._types(original.message_type, update.message_type, original.enum_type, update.enum_type)
        return self

    def incompatible(self) -> list[tuple[str, str]]:
        """Return the differences that a reader of older messages does not survive."""
        return [each for each in self.found if each[0] not in COMPATIBLE]

    def _add(self, kind: str) -> None:
        self.found.append((kind, "#/" + "/".join(self._path)))

    @contextmanager
    def _at(self, *names: object) -> Iterator[None]:
        self._path += map(str, names)
        yield
        del self._path[-len(names) :]

    def _types(
        self,
        original_messages: Iterable[pb.DescriptorProto],
        update_messages: Iterable[pb.DescriptorProto],
        original_enums: Iterable[pb.EnumDescriptorProto],
        update_enums: Iterable[pb.EnumDescriptorProto],
    ) -> None:
        before, after = _by_name(original_messages), _by_name(update_messages)
        for name, old, new in self._in_both("MESSAGE", _union(before, after), before, after):
            self._message(old, new)
            if list(before).index(name) != list(after).index(name):
                self._add("MESSAGE_MOVED")
        before, after = _by_name(original_enums), _by_name(update_enums)
        for _, old, new in self._in_both("ENUM", _union(before, after), before, after):
            self._enum(old, new)

    def _in_both(
        self, kind: str, names: Iterable[Any], before: Mapping[Any, Any], after: Mapping[Any, Any]
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Add what was added and removed; yield what is in both, at its place."""
        for name in names:
            with self._at(name):
                if name not in after:
                    self._add(f"{kind}_REMOVED")
                elif name not in before:
                    self._add(f"{kind}_ADDED")
                else:
                    yield name, before[name], after[name]

    def _enum(self, original: pb.EnumDescriptorProto, update: pb.EnumDescriptorProto) -> None:
        before = {each.number: each.name for each in original.value}
        after = {each.number: each.name for each in update.value}
        for _, old, new in self._in_both("ENUM_CONST", sorted({*before, *after}), before, after):
            if old != new:
                self._add("ENUM_CONST_CHANGED")

    def _message(self, original: pb.DescriptorProto, update: pb.DescriptorProto) -> None:
        before = {each.number: each for each in original.field}
        after = {each.number: each for each in update.field}
        oneofs_before, oneofs_after = _oneofs(original), _oneofs(update)
        deleted = {
            name
            for name, numbers in oneofs_before.items()
            if name not in oneofs_after and after.keys().isdisjoint(numbers)
        }
        place_before = {number: name for name, numbers in oneofs_before.items() for number in numbers}
        self._joined(before, place_before, oneofs_after)
        list(self._in_both("ONEOF", sorted({*oneofs_before, *oneofs_after}), oneofs_before, oneofs_after))
        place_after = {number: name for name, numbers in oneofs_after.items() for number in numbers}
        for number in sorted({*before, *after}):
            left, entered = place_before.get(number), place_after.get(number)
            if number not in after:
                if left not in deleted:
                    self._in_one(before[number], left, "REMOVED")
            elif number not in before:
                self._in_one(after[number], entered, "ADDED")
            else:
                if left is not None and entered is None:
                    with self._at(number):
                        self._add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL")
                with self._at(*([number] if entered is None else [entered, number])):
                    if before[number].name != after[number].name:
                        self._add("FIELD_NAME_CHANGED")
                    self._field(before[number], after[number], with_labels=True)
        self._types(_written(original), _written(update), original.enum_type, update.enum_type)

    def _joined(
        self,
        before: Mapping[int, pb.FieldDescriptorProto],
        place: Mapping[int, str],
        oneofs_after: Mapping[str, list[int]],
    ) -> None:
        """Find oneofs that make fields exclude each other that did not before."""
        for name, numbers in oneofs_after.items():
            known = [number for number in numbers if number in before]
            origins = {place.get(number, number) for number in known}
            if len(origins) > 1:
                with self._at(name):
                    moved_in = sum(number not in place for number in known)
                    self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved_in > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF")

    def _in_one(self, field: pb.FieldDescriptorProto, oneof: str | None, change: str) -> None:
        with self._at(*([field.number] if oneof is None else [oneof, field.number])):
            is_required = field.label == _F.LABEL_REQUIRED
            self._add(f"{'ONEOF_' if oneof is not None else 'REQUIRED_' if is_required else ''}FIELD_{change}")

    def _field(self, original: pb.FieldDescriptorProto, update: pb.FieldDescriptorProto, *, with_labels: bool) -> None:
        map_before, map_after = _entry(original, self._original), _entry(update, self._update)
        kind_before = "map" if map_before is not None else _KINDS.get(original.type, "message")
        kind_after = "map" if map_after is not None else _KINDS.get(update.type, "message")
        are_scalars = kind_before not in ("map", "message") and kind_after not in ("map", "message")
        if are_scalars:
            if kind_before != kind_after:
                self._add("FIELD_SCALAR_KIND_CHANGED")
            elif with_labels and original.label != update.label:
                is_text = kind_before == "string or bytes"
                self._add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED")
        elif kind_before != kind_after:
            self._add("FIELD_KIND_CHANGED")
        elif map_before is not None and map_after is not None:
            for before, after in zip(map_before.field, map_after.field, strict=True):
                self._field(before, after, with_labels=False)
        else:
            self._messages(self._original[original.type_name], self._update[update.type_name])

    def _messages(self, original: _Message, update: _Message) -> None:
        if original.local_name != update.local_name:
            self._add("FIELD_NAMED_TYPE_CHANGED")
            return
        pair = (original.local_name, update.local_name)
        if pair in self._compared:
            return
        self._compared.add(pair)
        count, path, self._path = len(self.incompatible()), self._path, [original.local_name]
        self._message(original.descriptor, update.descriptor)
        self._path = path
        if len(self.incompatible()) > count:
            self._add("FIELD_NAMED_TYPE_CHANGED")


def _messages(files: Files) -> dict[str, _Message]:
    """Return all messages by their full names, as fields name them."""
    found: dict[str, _Message] = {}

    def collect(prefix: str, outer: str, messages: Iterable[pb.DescriptorProto]) -> None:
        for each in messages:
            local = f"{outer}{each.name}"
            found[prefix + local] = _Message(local, each)
            collect(prefix, f"{local}.", each.nested_type)

    for file in files.values():
        collect(f".{file.package}." if file.package else ".", "", file.message_type)
    return found


def _entry(field: pb.FieldDescriptorProto, messages: Mapping[str, _Message]) -> pb.DescriptorProto | None:
    if field.type != _F.TYPE_MESSAGE or field.label != _F.LABEL_REPEATED:
        return None
    message = messages[field.type_name].descriptor
    return message if message.options.map_entry else None


def _written(message: pb.DescriptorProto) -> list[pb.DescriptorProto]:
    """Return the nested messages, except messages that stand for the entries of maps."""
    return [each for each in message.nested_type if not each.options.map_entry]


def _oneofs(message: pb.DescriptorProto) -> dict[str, list[int]]:
    """Return the numbers of the fields of each oneof, except oneofs that stand for `optional` in proto3."""
    found: dict[str, list[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, []).append(field.number)
    return found


def _by_name(items: Iterable[Any]) -> dict[str, Any]:
    return {each.name: each for each in items}


def _union(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [*before, *(name for name in after if name not in before)]
