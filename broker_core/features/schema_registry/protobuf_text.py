"""A protobuf descriptor as the text of a .proto file: one text for one descriptor."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor

from broker_core.features.schema_registry.parsed_schema import compact_json

_F = pb.FieldDescriptorProto
_LABELS = {_F.LABEL_REQUIRED: "required ", _F.LABEL_OPTIONAL: "optional ", _F.LABEL_REPEATED: "repeated "}
_MAX_FIELD_END = 536_870_912
_MAX_ENUM = 2**31 - 1


def to_text(file: pb.FileDescriptorProto) -> str:
    edition = file.syntax == "editions"
    lines = [
        f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        if edition
        else f'syntax = "{file.syntax or "proto2"}";'
    ]
    if file.package:
        lines.append(f"package {file.package};")
    if file.dependency:
        lines.append("")
    for index, name in enumerate(file.dependency):
        kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
        lines.append(f"import {kind}{compact_json(name)};")
    options = list(_option_lines(file.options))
    if options:
        lines += ["", *options]
    writer = _Writer(file.syntax or "proto2")
    for message in file.message_type:
        lines += ["", *writer.message(message)]
    for enum in file.enum_type:
        lines += ["", *writer.enum(enum)]
    lines += writer.extensions(file.extension)
    for service in file.service:
        lines += ["", *writer.service(service)]
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes the declarations of a file with this syntax."""

    def __init__(self, syntax: str) -> None:
        self._syntax = syntax

    def message(self, message: pb.DescriptorProto) -> list[str]:
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        body = list(_option_lines(message.options))
        body += _reserved(message.reserved_name, [(each.start, each.end - 1) for each in message.reserved_range])
        for each in message.extension_range:
            body.append(f"extensions {_range(each.start, each.end - 1, _MAX_FIELD_END - 1)};")
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                body.append(self._field(field, entries))
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                members = [
                    self._field(each, entries, in_oneof=True)
                    for each in message.field
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                ]
                body += _block(f"oneof {oneof.name}", [*_option_lines(oneof.options), *members])
        for nested in message.nested_type:
            if nested.name not in entries:
                body += self.message(nested)
        for enum in message.enum_type:
            body += self.enum(enum)
        body += self.extensions(message.extension)
        return _block(f"message {message.name}", body)

    def enum(self, enum: pb.EnumDescriptorProto) -> list[str]:
        body = list(_option_lines(enum.options))
        body += _reserved(
            enum.reserved_name, [(each.start, each.end) for each in enum.reserved_range], maximum=_MAX_ENUM
        )
        body += [f"{each.name} = {each.number}{_brackets(_options(each.options))};" for each in enum.value]
        return _block(f"enum {enum.name}", body)

    def extensions(self, fields: Any) -> list[str]:
        return [line for field in fields for line in _block(f"extend {field.extendee}", [self._field(field, {})])]

    def service(self, service: pb.ServiceDescriptorProto) -> list[str]:
        body = list(_option_lines(service.options))
        for each in service.method:
            sent = ("stream " if each.client_streaming else "") + each.input_type
            answered = ("stream " if each.server_streaming else "") + each.output_type
            head = f"rpc {each.name} ({sent}) returns ({answered})"
            options = list(_option_lines(each.options))
            body += _block(head, options) if options else [head + ";"]
        return _block(f"service {service.name}", body)

    def _field(
        self, field: pb.FieldDescriptorProto, entries: dict[str, pb.DescriptorProto], *, in_oneof: bool = False
    ) -> str:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == _F.LABEL_REPEATED else None
        if entry is not None:
            key, value = entry.field
            declared = f"map<{_type(key)}, {_type(value)}>"
        else:
            is_plain = in_oneof or (
                field.label == _F.LABEL_OPTIONAL and self._syntax != "proto2" and not field.proto3_optional
            )
            declared = ("" if is_plain else _LABELS[field.label]) + _type(field)
        options = []
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == _F.TYPE_STRING:
                default = compact_json(default)
            elif field.type == _F.TYPE_BYTES:
                # Escaped already.
                default = f'"{default}"'
            options.append(f"default = {default}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            options.append(f"json_name = {compact_json(field.json_name)}")
        options += _options(field.options)
        return f"{declared} {field.name} = {field.number}{_brackets(options)};"


def _type(field: pb.FieldDescriptorProto) -> str:
    return str(field.type_name or _F.Type.Name(field.type).removeprefix("TYPE_").lower())


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _block(head: str, body: list[str]) -> list[str]:
    return [head + " {", *("  " + line for line in body), "}"]


def _brackets(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _range(start: int, end: int, maximum: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == maximum else end}"


def _reserved(names: Any, ranges: list[tuple[int, int]], maximum: int = _MAX_FIELD_END - 1) -> list[str]:
    lines = []
    if ranges:
        lines.append(f"reserved {', '.join(_range(start, end, maximum) for start, end in ranges)};")
    if names:
        lines.append(f"reserved {', '.join(compact_json(each) for each in names)};")
    return lines


def _option_lines(options: Any) -> Iterator[str]:
    return (f"option {each};" for each in _options(options))


def _options(options: Any) -> list[str]:
    """Return `name = value` of each option that is set, but for `map_entry`, which map fields imply."""
    found = []
    for field, value in options.ListFields():
        if field.is_extension or field.type == FieldDescriptor.TYPE_MESSAGE or field.name == "map_entry":
            continue
        for each in [value] if isinstance(value, str | int | float | bytes) else value:
            if field.type == FieldDescriptor.TYPE_ENUM:
                text = field.enum_type.values_by_number[each].name
            else:
                text = compact_json(each)
            found.append(f"{field.name} = {text}")
    return found
