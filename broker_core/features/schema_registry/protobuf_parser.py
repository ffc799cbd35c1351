"""The text of a .proto file as a descriptor: the grammar is the library's, the meaning of its parts is here.

Names of types stay as written; a descriptor pool resolves and checks them. Custom options are left out: their meaning
needs the extensions that define them.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from broker_core.features.schema_registry.errors import InvalidSchema

_F = pb.FieldDescriptorProto
# The scalar types by the names that .proto files use.
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _F.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS = {
    ast.FieldCardinality.REQUIRED: _F.LABEL_REQUIRED,
    ast.FieldCardinality.OPTIONAL: _F.LABEL_OPTIONAL,
    ast.FieldCardinality.REPEATED: _F.LABEL_REPEATED,
}
_ESCAPE = re.compile(r"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_MAX_FIELD = 536_870_911
_MAX_ENUM = 2**31 - 1


class _Errors(ErrorListener):  # type: ignore[misc]
    """Raises the first error of the grammar; the library prints them instead."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:  # noqa: N802
        raise InvalidSchema(
            f"Invalid schema of type PROTOBUF: line {line}:{column + 1}: {message.split(' expecting')[0]}"
        )


def _strict(part: Any) -> None:
    part.removeErrorListeners()
    part.addErrorListener(_Errors())


def parse_proto(text: str, name: str) -> pb.FileDescriptorProto:
    """Return the descriptor of a .proto file; raises `InvalidSchema` with the line that cannot be parsed."""
    try:
        parsed = Parser(setup_lexer=_strict, setup_parser=_strict).parse(text)
        return _file(parsed, name)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from error


def _file(parsed: ast.File, name: str) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto(name=name)
    if parsed.edition is not None:
        file.syntax, file.edition = "editions", pb.Edition.Value(f"EDITION_{parsed.edition}")
    elif parsed.syntax == "proto3":
        file.syntax = "proto3"
    elif parsed.syntax not in (None, "proto2"):
        raise ValueError(f"unknown syntax {parsed.syntax!r}")
    for each in parsed.file_elements:
        _add_to_file(file, each)
    return file


def _add_to_file(file: pb.FileDescriptorProto, element: Any) -> None:
    match element:
        case ast.Package():
            file.package = element.name
        case ast.Import():
            if element.public:
                file.public_dependency.append(len(file.dependency))
            if element.weak:
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(element.name)
        case ast.Message():
            _message(file.message_type.add(), element, file.syntax)
        case ast.Enum():
            _enum(file.enum_type.add(), element)
        case ast.Service():
            _service(file.service.add(), element)
        case ast.Extension():
            _extension(file.extension.add, element, file.syntax)
        case ast.Option():
            _options(file.options, [element])
        case _:
            _ignored(element)


def _ignored(element: Any) -> None:
    if not isinstance(element, ast.Comment):
        raise TypeError(f"{type(element).__name__.lower()} {getattr(element, 'name', '')} is not supported here")


def _message(message: pb.DescriptorProto, parsed: ast.Message, syntax: str) -> None:
    message.name = parsed.name
    for each in parsed.elements:
        _add_to_message(message, each, syntax)
    # The oneofs that stand for `optional` in proto3 follow the file's own.
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _add_to_message(message: pb.DescriptorProto, element: Any, syntax: str) -> None:
    match element:
        case ast.Field():
            _field(message.field.add(proto3_optional=_has_presence(element, syntax)), element)
        case ast.MapField():
            _map_field(message, element)
        case ast.OneOf():
            _oneof(message, element)
        case ast.Message():
            _message(message.nested_type.add(), element, syntax)
        case ast.Enum():
            _enum(message.enum_type.add(), element)
        case ast.Reserved():
            message.reserved_name.extend(element.names)
            for start, end in _ranges(element.ranges, _MAX_FIELD):
                message.reserved_range.add(start=start, end=end + 1)
        case ast.ExtensionRange():
            for start, end in _ranges(element.ranges, _MAX_FIELD):
                message.extension_range.add(start=start, end=end + 1)
        case ast.Extension():
            _extension(message.extension.add, element, syntax)
        case ast.Option():
            _options(message.options, [element])
        case _:
            _ignored(element)


def _oneof(message: pb.DescriptorProto, parsed: ast.OneOf) -> None:
    index = len(message.oneof_decl)
    oneof = message.oneof_decl.add(name=parsed.name)
    for each in parsed.elements:
        if isinstance(each, ast.Field):
            _field(message.field.add(oneof_index=index), each)
        elif isinstance(each, ast.Option):
            _options(oneof.options, [each])
        else:
            _ignored(each)


def _field(field: pb.FieldDescriptorProto, parsed: ast.Field) -> None:
    field.name, field.number = parsed.name, parsed.number
    field.label = _F.LABEL_OPTIONAL if parsed.cardinality is None else _LABELS[parsed.cardinality]
    _set_type(field, parsed.type)
    options = []
    for option in parsed.options:
        if option.name == "default":
            # The default of a field of bytes stays escaped, as descriptors have it.
            is_bytes = field.type == _F.TYPE_BYTES
            field.default_value = option.value if is_bytes else _default(_unescaped(option.value))
        elif option.name == "json_name":
            field.json_name = _unescaped(option.value)
        else:
            options.append(option)
    _options(field.options, options)


def _has_presence(parsed: ast.Field, syntax: str) -> bool | None:
    return True if syntax == "proto3" and parsed.cardinality is ast.FieldCardinality.OPTIONAL else None


def _set_type(field: pb.FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        # The pool finds out whether it is a message or an enum.
        field.type_name = name


def _map_field(message: pb.DescriptorProto, parsed: ast.MapField) -> None:
    entry = message.nested_type.add(
        name="".join(each[:1].upper() + each[1:] for each in parsed.name.split("_")) + "Entry"
    )
    entry.options.map_entry = True
    for name, number, kind in (("key", 1, parsed.key_type), ("value", 2, parsed.value_type)):
        _set_type(entry.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL), kind)
    field = message.field.add(name=parsed.name, number=parsed.number, label=_F.LABEL_REPEATED)
    field.type, field.type_name = _F.TYPE_MESSAGE, entry.name
    _options(field.options, parsed.options)


def _enum(enum: pb.EnumDescriptorProto, parsed: ast.Enum) -> None:
    enum.name = parsed.name
    for each in parsed.elements:
        match each:
            case ast.EnumValue():
                value = enum.value.add(name=each.name, number=each.number)
                _options(value.options, each.options)
            case ast.EnumReserved():
                enum.reserved_name.extend(each.names)
                for start, end in _ranges(each.ranges, _MAX_ENUM):
                    enum.reserved_range.add(start=start, end=end)
            case ast.Option():
                _options(enum.options, [each])
            case _:
                _ignored(each)


def _service(service: pb.ServiceDescriptorProto, parsed: ast.Service) -> None:
    service.name = parsed.name
    for each in parsed.elements:
        match each:
            case ast.Method():
                method = service.method.add(
                    name=each.name, input_type=each.input_type.type, output_type=each.output_type.type
                )
                if each.input_type.stream:
                    method.client_streaming = True
                if each.output_type.stream:
                    method.server_streaming = True
                _options(method.options, [part for part in each.elements if isinstance(part, ast.Option)])
            case ast.Option():
                _options(service.options, [each])
            case _:
                _ignored(each)


def _extension(add: Callable[..., pb.FieldDescriptorProto], parsed: ast.Extension, syntax: str) -> None:
    for each in parsed.elements:
        if isinstance(each, ast.Field):
            _field(add(extendee=parsed.typeName, proto3_optional=_has_presence(each, syntax)), each)
        else:
            _ignored(each)


def _ranges(texts: Sequence[str], maximum: int) -> Iterable[tuple[int, int]]:
    for text in texts:
        start, _, end = text.partition(" to ")
        first = int(start, 0)
        yield first, first if not end else maximum if end == "max" else int(end, 0)


def _unescaped(value: Any) -> Any:
    """Return a value; if it is text, without the escapes of a string literal, which the library leaves in."""
    return _ESCAPE.sub(_character, value) if isinstance(value, str) else value


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xX":
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, ast.Identifier) else str(value)


def _options(options: Any, parsed: Sequence[Any]) -> None:
    """Set the options that protobuf itself defines; others are left out."""
    for each in parsed:
        field = options.DESCRIPTOR.fields_by_name.get(each.name)
        if field is None:
            if not each.name.startswith("("):
                raise ValueError(f"unknown option {each.name}")
            continue
        value = each.value.name if isinstance(each.value, ast.Identifier) else _unescaped(each.value)
        if field.type == FieldDescriptor.TYPE_ENUM:
            value = field.enum_type.values_by_name[value].number
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            # `features` of editions: their defaults apply.
            continue
        if isinstance(getattr(options, each.name), str | int | float | bytes):
            setattr(options, each.name, value)
        else:
            getattr(options, each.name).append(value)
