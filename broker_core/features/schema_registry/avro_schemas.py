"""Avro schemas, parsed and compared by Apache's library."""

import json
import re
import warnings
from typing import Any

import avro.constants
import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.io import validate
from avro.name import Names

from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.parsed_schema import ParsedSchema, Resolved, compact_json, flat, load_json

# The order in which Avro for Java writes the attributes of a schema and of a field; other attributes follow, sorted.
_SCHEMA_KEYS = (
    "type",
    "name",
    "namespace",
    "doc",
    "fields",
    "symbols",
    "size",
    "items",
    "values",
    "default",
    "aliases",
)
_FIELD_KEYS = ("name", "type", "doc", "default", "order", "aliases")
# The attributes that contain schemas, or fields with schemas.
_NESTED_KEYS = ("type", "items", "values", "fields")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AvroSchema(ParsedSchema):
    """An Avro schema with the definitions of all types that it refers to."""

    schema_type = "AVRO"

    def __init__(self, text: str, resolved: Resolved = (), *, is_new: bool = False) -> None:
        names = Names()
        with warnings.catch_warnings():
            # A logical type that is not valid is ignored, as the specification says.
            warnings.simplefilter("ignore")
            for name, referenced in flat(resolved).items():
                _parsed(referenced.text, names, f"reference {name}")
            known = Names()
            known.names = dict(names.names)
            self.schema = _parsed(text, names, "schema")
        _check(self.schema, set(), with_defaults=is_new)
        self.written_out: str = compact_json(_ordered(self.schema.to_json(Names())))
        super().__init__(compact_json(_ordered(self.schema.to_json(known))))

    def formatted(self, form: str) -> str:
        """Return the text; as "resolved", with the definitions that it refers to."""
        return self.written_out if form == "resolved" else self.text

    def can_read(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, AvroSchema)
        result = ReaderWriterCompatibilityChecker().get_compatibility(self._of_records(), writer._of_records())
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(dict.fromkeys(each.name.upper() for each in result.incompatibilities))
        places, reasons = ", ".join(sorted(result.locations)), "; ".join(sorted(result.messages))
        return [f"{{errorType:'{kinds}', description:'{reasons}', path: '{places}'}}"]

    def _of_records(self) -> Any:
        """Return the schema with records in place of errors, which the library does not compare."""
        if '"error"' not in self.written_out:
            return self.schema
        return avro.schema.make_avsc_object(_with_records(json.loads(self.written_out)), Names())


def _with_records(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_records(each) for each in value]
    if not isinstance(value, dict):
        return value
    parts = {key: _with_records(each) if key in _NESTED_KEYS else each for key, each in value.items()}
    return parts | ({"type": "record"} if parts.get("type") == "error" else {})


def _parsed(text: str, names: Names, what: str) -> Any:
    stripped = text.strip()
    # Java's parser takes the name of a primitive type without quotes, too.
    value = stripped if stripped in avro.constants.PRIMITIVE_TYPES else load_json(text, "AVRO")
    try:
        return avro.schema.make_avsc_object(value, names)
    except (AvroException, TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise InvalidSchema(f"Invalid schema of type AVRO: {what}: {error}") from error


def _check(schema: Any, seen: set[int], *, with_defaults: bool) -> None:
    """Refuse what Avro for Java refuses and the library accepts: names of fields, and defaults of another type."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    for field in getattr(schema, "fields", ()):
        if not _NAME.fullmatch(field.name):
            raise InvalidSchema(f"Invalid schema of type AVRO: illegal initial character or name: {field.name!r}")
        if with_defaults and field.has_default and not _is_default(field.type, field.default):
            raise InvalidSchema(
                f"Invalid schema of type AVRO: invalid default for field {field.name}: "
                f"{compact_json(field.default)} not a {compact_json(field.type.to_json())}"
            )
        _check(field.type, seen, with_defaults=with_defaults)
    parts = [getattr(schema, "items", None), getattr(schema, "values", None), *getattr(schema, "schemas", ())]
    for part in parts:
        if part is not None and not callable(part):
            _check(part, seen, with_defaults=with_defaults)


def _is_default(schema: Any, value: Any) -> bool:
    """Return whether a JSON value is a default of this type; of a union, any branch counts."""
    match schema.type:
        case "union":
            return any(_is_default(branch, value) for branch in schema.schemas)
        case "bytes" | "fixed":
            # JSON has bytes as text of the code points 0 to 255.
            return isinstance(value, str) and all(ord(each) < 256 for each in value)
        case "array":
            return isinstance(value, list) and all(_is_default(schema.items, each) for each in value)
        case "map":
            return isinstance(value, dict) and all(_is_default(schema.values, each) for each in value.values())
        case "record" | "error":
            return isinstance(value, dict) and all(
                _is_default(field.type, value[field.name]) if field.name in value else field.has_default
                for field in schema.fields
            )
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "int" | "long":
            bits = 31 if schema.type == "int" else 63
            return type(value) is int and -(2**bits) <= value < 2**bits
        case _:
            return bool(validate(schema, value))


def _ordered(value: Any, keys: tuple[str, ...] = _SCHEMA_KEYS) -> Any:
    """Return the JSON form of a schema with its attributes in one order."""
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key in [*(each for each in keys if each in value), *sorted(set(value) - set(keys))]:
        if key == "fields":
            found[key] = [_ordered(each, _FIELD_KEYS) for each in value[key]]
        elif key in ("type", "items", "values"):
            found[key] = _ordered(value[key])
        else:
            found[key] = value[key]
    return found
