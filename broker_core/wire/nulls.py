"""Refuse nulls where the schema has none.

kafka-python's decoder reads a length of -1 as None for every string, array and byte field; Kafka's refuses it
where the schema does not say that the field is nullable. Handlers rely on that.
"""

from typing import Any, NamedTuple

# Worked out once for each request and version; there are some two hundred.
_rules: "dict[tuple[int, int], tuple[_Rule, ...]]" = {}


class _Rule(NamedTuple):
    """Say for one field whether null is legal, and what to look at inside it."""

    name: str
    nullable: bool
    inner: "tuple[_Rule, ...]"
    is_array: bool


def check_nulls(message: Any, version: int) -> None:
    """Raise ValueError when a field that may not be null is; the message was decoded for this version."""
    key = (message.API_KEY, version)
    if key not in _rules:
        _rules[key] = _rules_of(message._struct, version)
    _check(message, _rules[key])


def _check(value: Any, rules: tuple[_Rule, ...]) -> None:
    for rule in rules:
        part = getattr(value, rule.name)
        if part is None:
            if not rule.nullable:
                raise ValueError(f"{rule.name} is null")
        elif rule.inner:
            for item in part if rule.is_array else (part,):
                _check(item, rule.inner)


def _rules_of(struct: Any, version: int) -> tuple[_Rule, ...]:
    """Keep only fields that can be null in this version, or hold some that can."""
    rules = []
    for field in struct._fields:
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        inner = _rules_of(field, version) if field.is_struct() or field.is_struct_array() else ()
        can_be_null = field.is_array() or field.is_struct_array() or field.type_str in ("string", "bytes", "records")
        nullable = field.nullable_for_version_q(version) or not can_be_null
        if inner or not nullable:
            rules.append(_Rule(field.name, nullable, inner, field.is_struct_array()))
    return tuple(rules)
