"""Stubs of Kafka's messages, from the schemas that kafka-python and broker_core ship.

Both make a message's class at run time, so mypy sees no fields. A stub lists them: mypy then checks each field that a
handler reads and each argument that it passes. `python -m tests.support.message_stubs` writes the stubs, and
`tests/unit/test_message_stubs.py` checks that they are current.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any, Final

from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer

ROOT: Final = Path(__file__).resolve().parents[2]
# The modules of kafka-python that have messages, as our code imports them.
LIBRARY: Final = (
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.consumer.metadata",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
    "kafka.protocol.sasl",
)
OURS: Final = "broker_core.wire.messages"

_PYTHON_TYPES: Final = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), "int"),
    "float64": "float",
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    # Batches are sliced out of a request and passed on, never copied.
    "records": "bytes | bytearray | memoryview",
    "uuid": "UUID",
    "bitfield": "Set[int]",
}
_BASES: Final = (
    ("api_data", "ApiData"),
    ("api_message", "ApiMessage"),
    ("api_message", "ApiRequest"),
    ("data_container", "DataContainer"),
)
_HEAD: Final = "# Written by `python -m tests.support.message_stubs`.\n"


def stubs() -> Mapping[Path, str]:
    """Return the text of each stub, by its path in the repository."""
    written = {Path("stubs", *module.split("."), "__init__.pyi"): _library_stub(module) for module in LIBRARY}
    written[Path(*OURS.split(".")).with_suffix(".pyi")] = _own_stub()
    return written


def _library_stub(module: str) -> str:
    found = list(_messages(module))
    here = [message for message in found if _stub_of(message, module) == module]
    elsewhere = [message.__name__ for message in found if message not in here]
    imports = [f"from {module}.metadata import {name} as {name}" for name in elsewhere]
    others = sorted(set(getattr(import_module(module), "__all__", ())) - {message.__name__ for message in found})
    return _text(here, imports, "".join(f"{name}: Any\n" for name in others))


def _own_stub() -> str:
    found = list(_messages(OURS))
    here = [message for message in found if message.__module__ == OURS]
    imports = [
        f"from {_stub_of(message, None)} import {message.__name__} as {message.__name__}"
        for message in found
        if message.__module__ != OURS
    ]
    others = (("api_header", "RequestHeader"), *_BASES[1:])
    imports += [f"from kafka.protocol.{module} import {name} as {name}" for module, name in others]
    return _text(here, imports, "NULL_UUID: UUID\n")


def _stub_of(message: type[Any], module: str | None) -> str:
    """Return the module in whose stub a class of kafka-python stands."""
    if module is None or module.startswith(OURS):
        return max((name for name in LIBRARY if message.__module__.startswith(name)), key=len)
    return "kafka.protocol.consumer.metadata" if issubclass(message, ApiData) else module


def _messages(module: str) -> Iterator[type[Any]]:
    """Yield the messages that a module names."""
    for name, value in sorted(vars(import_module(module)).items()):
        if isclass(value) and issubclass(value, ApiMessage | ApiData) and value._struct is not None and name[0] != "_":
            yield value


def _text(messages: Iterable[type[Any]], imports: Iterable[str], others: str = "") -> str:
    body = "\n".join([*("\n".join([*_class(message), ""]) for message in messages), *([others] if others else ())])
    needed = list(imports)
    if ": Any" in body:
        needed.append("from typing import Any")
    if "Set[int]" in body:
        needed.append("from collections.abc import Set")
    if "UUID" in body:
        needed.append("from uuid import UUID")
    for module, name in _BASES:
        if re.search(rf"\({name}\b", body) and not any(line.endswith(f" as {name}") for line in needed):
            needed.append(f"from kafka.protocol.{module} import {name}")
    return f"{_HEAD}{chr(10).join(needed)}\n\n{body}"


def _class(message: Any, indent: str = "") -> Iterator[str]:
    base = next(kind for kind in (ApiMessage, ApiData, DataContainer) if issubclass(message, kind)).__name__
    if base == "ApiMessage" and message.is_request():
        base = f"ApiRequest[{message.__name__.removesuffix('Request')}Response]"
    yield f"{indent}class {message.__name__}({base}):"
    inner = indent + "    "
    structs = [field.type_str for field in message._struct._fields if field.is_struct() or field.is_struct_array()]
    for name in dict.fromkeys(structs):
        yield from _class(getattr(message, name), inner)
        yield ""
    for field in message._struct._fields:
        yield f"{inner}{field.name}: {field_type(field)} = ..."
    if not message._struct._fields:
        yield f"{inner}pass"


def field_type(field: Any) -> str:
    """Return a field's type; None belongs to it where the schema or a default allows it, and in place of an id of 0."""
    if field.is_struct_array():
        name = f"list[{field.type_str}]"
    elif field.is_array():
        item = _PYTHON_TYPES[field.array_of._type_str]
        name = f"list[{item} | None]" if item == "UUID" else f"list[{item}]"
    elif field.is_struct():
        name = field.type_str
    else:
        name = _PYTHON_TYPES[field._type_str]
    is_plain_struct = field.is_struct() and field._tag is None
    optional = field._nullable_versions is not None or (not is_plain_struct and field.default is None)
    return f"{name} | None" if optional else name


def main() -> None:
    """Write the stubs."""
    for path, text in stubs().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
