"""Refuse what Kafka's decoder refuses and kafka-python's lets pass.

That is a length of -1, read as None, for a string, array or byte field of which the schema does not say that it is
nullable; and a compact string of more bytes than an int16 can count, which answers and records could not repeat.
Handlers rely on both.
"""

from typing import Any, Final, NamedTuple

from broker_core.types import LONGEST_STRING_BYTES

# A character has at most four bytes, so most strings need not be encoded to be measured.
_SURELY_SHORT: Final = LONGEST_STRING_BYTES // 4

# Worked out once for each request and version; there are some two hundred.
_rules: "dict[tuple[int, int], tuple[_Rule, ...]]" = {}


class _Rule(NamedTuple):
    """Say for one field whether null is legal, whether it holds text, and what to look at inside it."""

    name: str
    nullable: bool
    is_text: bool
    inner: "tuple[_Rule, ...]"
    is_array: bool


def check_fields(message: Any, version: int) -> None:
    """Raise ValueError when a field holds what it may not; the message was decoded for this version."""
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
        elif rule.is_text:
            for text in part if rule.is_array else (part,):
                _check_text(rule.name, text)
        elif rule.inner:
            for item in part if rule.is_array else (part,):
                _check(item, rule.inner)


def _check_text(name: str, text: str | None) -> None:
    if text is None:
        raise ValueError(f"one of {name} is null")
    if len(text) > _SURELY_SHORT and (size_bytes := len(text.encode())) > LONGEST_STRING_BYTES:
        raise ValueError(f"{name} has {size_bytes} bytes; a string has at most {LONGEST_STRING_BYTES}")


def _rules_of(struct: Any, version: int) -> tuple[_Rule, ...]:
    """Keep only fields that can be null in this version, are text, or hold some that can."""
    rules = []
    for field in struct._fields:
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        is_array = field.is_array() or field.is_struct_array()
        inner = _rules_of(field, version) if field.is_struct() or field.is_struct_array() else ()
        is_text = field.type_str in ("string", "[]string")
        can_be_null = is_array or is_text or field.type_str in ("bytes", "records")
        nullable = field.nullable_for_version_q(version) or not can_be_null
        if inner or is_text or not nullable:
            rules.append(_Rule(field.name, nullable, is_text, inner, is_array))
    return tuple(rules)
