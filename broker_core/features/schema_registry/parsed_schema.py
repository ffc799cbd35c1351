"""What all kinds of schemas have in common once they are parsed, and the compatibility levels.

A level says which earlier schemas a new one is compared with, and in which direction.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_core.features.schema_registry.errors import InvalidSchema


class Reference(NamedTuple):
    """A reference from one schema to a version of another: `name` is how the text of the first names it."""

    name: str
    subject: str
    version: int


class ReferencedSchema(NamedTuple):
    """The text of a schema that a reference names, and the references of that one."""

    text: str
    references: "Sequence[tuple[Reference, ReferencedSchema]]"


Resolved = Sequence[tuple[Reference, ReferencedSchema]]


class ParsedSchema(ABC):
    """A schema: its canonical text, and how it compares with earlier ones."""

    schema_type: str

    # A field whose name `validateFields` forbids; no name of Avro or Protobuf is one.
    reserved_field: str | None = None
    # The text with what it refers to in place of the names; None for a type of schemas that has no such text.
    written_out: str | None = None

    def __init__(self, text: str, equality_key: str = "") -> None:
        # Schemas of one canonical text share an id. Within a subject, schemas of one key count as the same.
        self.text, self.equality_key = text, equality_key or text

    @abstractmethod
    def can_read(self, writer: "ParsedSchema") -> list[str]:
        """Return why data written with `writer`, of the same type, cannot be read with this schema; empty if it can."""

    def formatted(self, form: str) -> str:
        """Return the text in a form that a client asks for; the canonical text if the form is not known."""
        return self.text


def load_json(text: str, what: str) -> Any:
    """Return the value of a JSON text; `InvalidSchema` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"Invalid schema of type {what}: the text is not JSON: {error}") from error


def compact_json(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def flat(resolved: Resolved) -> Mapping[str, ReferencedSchema]:
    """Return all schemas that references lead to by name, each after those it refers to."""
    found: dict[str, ReferencedSchema] = {}
    for reference, schema in resolved:
        found.update(flat(schema.references))
        found[reference.name] = schema
    return found


# Source: Confluent's documentation, "Schema Evolution and Compatibility for Schema Registry", the table of types.
# BACKWARD: the new schema reads older data. FORWARD: older schemas read new data. TRANSITIVE: all versions count.
LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
DEFAULT_LEVEL = "BACKWARD"


def reasons_against(level: str, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Return why a level forbids a schema after the versions `earlier`, oldest first; empty if it allows it."""
    if level == "NONE":
        return []
    for version, old in reversed(earlier if level.endswith("_TRANSITIVE") else earlier[-1:]):
        if new.schema_type != old.schema_type:
            reasons = ["Incompatible because of different schema type"]
        else:
            reasons = [] if level.startswith("FORWARD") else new.can_read(old)
            reasons = reasons + ([] if level.startswith("BACKWARD") else old.can_read(new))
        if reasons:
            return [
                *reasons,
                f"{{oldSchemaVersion: {version}}}",
                f"{{oldSchema: '{old.text}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            ]
    return []
