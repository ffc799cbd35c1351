"""The compatibility levels: which earlier schemas a new one is compared with, and in which direction."""

from collections.abc import Sequence
from typing import NamedTuple

from broker_core.features.schema_registry.parsed_schema import ParsedSchema


class _Level(NamedTuple):
    """The direction of a level, and whether it looks at all versions.

    `backward`: the new schema reads older data. `forward`: older schemas read new data.
    """

    backward: bool
    forward: bool
    transitive: bool


# Source: Confluent's documentation, "Schema Evolution and Compatibility for Schema Registry", the table of types.
LEVELS = {
    "NONE": _Level(backward=False, forward=False, transitive=False),
    "BACKWARD": _Level(backward=True, forward=False, transitive=False),
    "BACKWARD_TRANSITIVE": _Level(backward=True, forward=False, transitive=True),
    "FORWARD": _Level(backward=False, forward=True, transitive=False),
    "FORWARD_TRANSITIVE": _Level(backward=False, forward=True, transitive=True),
    "FULL": _Level(backward=True, forward=True, transitive=False),
    "FULL_TRANSITIVE": _Level(backward=True, forward=True, transitive=True),
}
DEFAULT_LEVEL = "BACKWARD"


class Earlier(NamedTuple):
    """A version that a new schema is compared with."""

    version: int
    schema: ParsedSchema


def reasons_against(level: str, new: ParsedSchema, earlier: Sequence[Earlier]) -> list[str]:
    """Return why a level forbids a schema after `earlier`, oldest first; empty if it allows it."""
    rule = LEVELS[level]
    if not (rule.backward or rule.forward):
        return []
    for each in reversed(earlier if rule.transitive else earlier[-1:]):
        reasons = _reasons(rule, new, each.schema)
        if reasons:
            return [
                *reasons,
                f"{{oldSchemaVersion: {each.version}}}",
                f"{{oldSchema: '{each.schema.text}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            ]
    return []


def _reasons(rule: _Level, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if new.schema_type != old.schema_type:
        return ["Incompatible because of different schema type"]
    return [*(new.can_read(old) if rule.backward else []), *(old.can_read(new) if rule.forward else [])]
