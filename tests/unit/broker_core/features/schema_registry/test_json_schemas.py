"""JSON schemas of the registry: the table of differences, row by row, and references."""

import json

import pytest

pytest.importorskip("jsonschema", reason="needs the extra registry")

from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.json_compatibility import COMPATIBLE, Comparison
from broker_core.features.schema_registry.json_schemas import JsonSchema
from broker_core.features.schema_registry.parsed_schema import Reference, ReferencedSchema

P, Q = {"type": "string"}, {"type": "integer"}
OPEN = {"type": "object"}
CLOSED = {"type": "object", "additionalProperties": False}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
TUPLE = {"type": "array", "items": [P]}
TWO, SAME_TWO = TUPLE | {"items": [P, Q]}, TUPLE | {"items": [P, P]}
CLOSED_TUPLE, TEXTS_TUPLE = {"additionalItems": False}, {"additionalItems": P}
# A property, one with a default, and the same that must be there.
A, A_OR_EMPTY = {"properties": {"a": P}}, {"properties": {"a": P | {"default": ""}}}
MUST_A, MUST_A_OR_EMPTY = A | {"required": ["a"]}, A_OR_EMPTY | {"required": ["a"]}
DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def limits(kind: str, keyword: str, name: str, *, is_upper: bool) -> list[tuple[str, dict, dict]]:
    """Return the rows of a keyword that sets a limit."""
    bare, low, high = {"type": kind}, {"type": kind, keyword: 1}, {"type": kind, keyword: 2}
    assert f"{name}_{'INCREASED' if is_upper else 'DECREASED'}" in COMPATIBLE
    assert f"{name}_{'DECREASED' if is_upper else 'INCREASED'}" not in COMPATIBLE
    return [
        (f"{name}_ADDED", bare, low),
        (f"{name}_REMOVED", low, bare),
        (f"{name}_INCREASED", low, high),
        (f"{name}_DECREASED", high, low),
    ]


# The name of the difference, the earlier schema, the later one. A name in COMPATIBLE is a compatible change.
ROWS: list[tuple[str, dict | bool, dict | bool]] = [
    ("TYPE_CHANGED", P, Q),
    ("TYPE_CHANGED", {}, P),
    ("TYPE_EXTENDED", Q, {"type": "number"}),
    ("TYPE_NARROWED", {"type": "number"}, Q),
    *limits("string", "maxLength", "MAX_LENGTH", is_upper=True),
    *limits("string", "minLength", "MIN_LENGTH", is_upper=False),
    *limits("number", "maximum", "MAXIMUM", is_upper=True),
    *limits("number", "minimum", "MINIMUM", is_upper=False),
    *limits("number", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", is_upper=True),
    *limits("number", "exclusiveMinimum", "EXCLUSIVE_MINIMUM", is_upper=False),
    *limits("object", "maxProperties", "MAX_PROPERTIES", is_upper=True),
    *limits("object", "minProperties", "MIN_PROPERTIES", is_upper=False),
    *limits("array", "maxItems", "MAX_ITEMS", is_upper=True),
    *limits("array", "minItems", "MIN_ITEMS", is_upper=False),
    *limits("array", "maxContains", "MAX_CONTAINS", is_upper=True),
    *limits("array", "minContains", "MIN_CONTAINS", is_upper=False),
    ("PATTERN_ADDED", P, P | {"pattern": "a"}),
    ("PATTERN_REMOVED", P | {"pattern": "a"}, P),
    ("PATTERN_CHANGED", P | {"pattern": "a"}, P | {"pattern": "b"}),
    ("MULTIPLE_OF_ADDED", Q, Q | {"multipleOf": 2}),
    ("MULTIPLE_OF_REMOVED", Q | {"multipleOf": 2}, Q),
    ("MULTIPLE_OF_EXPANDED", Q | {"multipleOf": 2}, Q | {"multipleOf": 4}),
    ("MULTIPLE_OF_REDUCED", Q | {"multipleOf": 4}, Q | {"multipleOf": 2}),
    ("MULTIPLE_OF_CHANGED", Q | {"multipleOf": 4}, Q | {"multipleOf": 3}),
    ("REQUIRED_ATTRIBUTE_ADDED", OPEN | A, OPEN | MUST_A),
    ("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", OPEN | A_OR_EMPTY, OPEN | MUST_A_OR_EMPTY),
    ("REQUIRED_ATTRIBUTE_REMOVED", OPEN | MUST_A, OPEN | A),
    ("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", OPEN, OPEN | A),
    ("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", OPEN, OPEN | MUST_A),
    ("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL", OPEN, OPEN | MUST_A_OR_EMPTY),
    ("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", OPEN, OPEN | {"properties": {"a": {}}}),
    ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", CLOSED, CLOSED | A),
    ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", CLOSED, CLOSED | MUST_A),
    ("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", CLOSED, CLOSED | MUST_A_OR_EMPTY),
    ("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", OPEN | A, OPEN),
    ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", CLOSED | A, CLOSED),
    ("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", CLOSED | {"properties": {"a": False}}, CLOSED),
    ("PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TEXTS | A, TEXTS),
    ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TEXTS | {"properties": {"a": Q}}, TEXTS),
    ("PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TEXTS, TEXTS | A),
    ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TEXTS, TEXTS | {"properties": {"a": Q}}),
    (
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        OPEN | {"patternProperties": {"^a": P}},
        OPEN | {"patternProperties": {"^a": P}, "properties": {"a1": Q}},
    ),
    ("ADDITIONAL_PROPERTIES_ADDED", CLOSED, OPEN),
    ("ADDITIONAL_PROPERTIES_REMOVED", OPEN, CLOSED),
    ("ADDITIONAL_PROPERTIES_EXTENDED", TEXTS, OPEN),
    ("ADDITIONAL_PROPERTIES_NARROWED", OPEN, TEXTS),
    ("UNEVALUATED_PROPERTIES_ADDED", OPEN | {"unevaluatedProperties": False}, OPEN),
    ("UNEVALUATED_PROPERTIES_REMOVED", OPEN, OPEN | {"unevaluatedProperties": False}),
    ("UNEVALUATED_PROPERTIES_EXTENDED", OPEN | {"unevaluatedProperties": P}, OPEN),
    ("UNEVALUATED_PROPERTIES_NARROWED", OPEN | {"unevaluatedProperties": True}, OPEN | {"unevaluatedProperties": P}),
    ("DEPENDENCY_ARRAY_ADDED", OPEN, OPEN | {"dependencies": {"a": ["b"]}}),
    ("DEPENDENCY_ARRAY_REMOVED", OPEN | {"dependencies": {"a": ["b"]}}, OPEN),
    ("DEPENDENCY_ARRAY_EXTENDED", OPEN | {"dependencies": {"a": ["b"]}}, OPEN | {"dependencies": {"a": ["b", "c"]}}),
    ("DEPENDENCY_ARRAY_NARROWED", OPEN | {"dependencies": {"a": ["b", "c"]}}, OPEN | {"dependencies": {"a": ["b"]}}),
    ("DEPENDENCY_ARRAY_CHANGED", OPEN | {"dependencies": {"a": ["b"]}}, OPEN | {"dependencies": {"a": ["c"]}}),
    ("DEPENDENCY_ARRAY_ADDED", DRAFT_2020 | OPEN, DRAFT_2020 | OPEN | {"dependentRequired": {"a": ["b"]}}),
    ("DEPENDENCY_SCHEMA_ADDED", OPEN, OPEN | {"dependencies": {"a": {"required": ["b"]}}}),
    ("DEPENDENCY_SCHEMA_REMOVED", OPEN | {"dependencies": {"a": {"required": ["b"]}}}, OPEN),
    ("UNIQUE_ITEMS_ADDED", {"type": "array"}, {"type": "array", "uniqueItems": True}),
    ("UNIQUE_ITEMS_REMOVED", {"type": "array", "uniqueItems": True}, {"type": "array"}),
    ("SCHEMA_ADDED", {"type": "array"}, {"type": "array", "items": P}),
    ("SCHEMA_REMOVED", {"type": "array", "items": P}, {"type": "array"}),
    ("ADDITIONAL_ITEMS_ADDED", TUPLE | CLOSED_TUPLE, TUPLE),
    ("ADDITIONAL_ITEMS_REMOVED", TUPLE, TUPLE | CLOSED_TUPLE),
    ("ADDITIONAL_ITEMS_EXTENDED", TUPLE | TEXTS_TUPLE, TUPLE),
    ("ADDITIONAL_ITEMS_NARROWED", TUPLE, TUPLE | TEXTS_TUPLE),
    ("UNEVALUATED_ITEMS_ADDED", TUPLE | {"unevaluatedItems": False}, TUPLE),
    ("UNEVALUATED_ITEMS_REMOVED", TUPLE, TUPLE | {"unevaluatedItems": False}),
    ("UNEVALUATED_ITEMS_EXTENDED", TUPLE | {"unevaluatedItems": P}, TUPLE),
    ("UNEVALUATED_ITEMS_NARROWED", TUPLE, TUPLE | {"unevaluatedItems": P}),
    ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", TUPLE, TWO),
    ("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", TUPLE, {"type": "array", "items": [P, {}]}),
    ("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", TUPLE | CLOSED_TUPLE, TWO | CLOSED_TUPLE),
    ("ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TUPLE | TEXTS_TUPLE, SAME_TWO | TEXTS_TUPLE),
    ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TUPLE | TEXTS_TUPLE, TWO | TEXTS_TUPLE),
    ("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", TWO, TUPLE),
    ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", TWO | CLOSED_TUPLE, TUPLE | CLOSED_TUPLE),
    (
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        {"type": "array", "items": [P, False], "additionalItems": False},
        TUPLE | CLOSED_TUPLE,
    ),
    ("ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", SAME_TWO | TEXTS_TUPLE, TUPLE | TEXTS_TUPLE),
    ("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", TWO | TEXTS_TUPLE, TUPLE | TEXTS_TUPLE),
    ("ENUM_ARRAY_EXTENDED", {"enum": ["a"]}, {"enum": ["a", "b"]}),
    ("ENUM_ARRAY_NARROWED", {"enum": ["a", "b"]}, {"enum": ["a"]}),
    ("ENUM_ARRAY_CHANGED", {"enum": ["a"]}, {"enum": ["b"]}),
    ("ENUM_ARRAY_CHANGED", {"const": "a"}, {"const": "b"}),
    ("COMBINED_TYPE_EXTENDED", {"allOf": [P, Q]}, {"anyOf": [P, Q]}),
    ("COMBINED_TYPE_CHANGED", {"anyOf": [P, Q]}, {"allOf": [P, Q]}),
    ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", {"oneOf": [P, Q]}, {"oneOf": [P, {"type": "boolean"}]}),
    ("PRODUCT_TYPE_EXTENDED", {"allOf": [P, {"minLength": 1}]}, {"allOf": [P, {"minLength": 1}, {"maxLength": 9}]}),
    ("PRODUCT_TYPE_NARROWED", {"allOf": [P, {"minLength": 1}, {"maxLength": 9}]}, {"allOf": [P, {"minLength": 1}]}),
    ("PRODUCT_TYPE_NARROWED", {"allOf": [P, Q]}, P),
    ("SUM_TYPE_EXTENDED", {"oneOf": [P, Q]}, {"oneOf": [P, Q, {"type": "null"}]}),
    ("SUM_TYPE_EXTENDED", P, {"type": ["string", "null"]}),
    ("SUM_TYPE_NARROWED", {"oneOf": [P, Q, {"type": "null"}]}, {"oneOf": [P, Q]}),
    ("NOT_TYPE_NARROWED", {"not": {"type": "number"}}, {"not": Q}),
    ("NOT_TYPE_EXTENDED", {"not": Q}, {"not": {"type": "number"}}),
]


def schema(value: object, resolved=()) -> JsonSchema:
    return JsonSchema(json.dumps(value), resolved)


@pytest.mark.parametrize(("name", "original", "update"), ROWS)
def test_each_difference_is_found_and_decides(name, original, update):
    original, update = schema(original), schema(update)
    assert name in {kind for kind, _ in Comparison().between(original.node, update.node)}
    if name not in COMPATIBLE:
        assert any(name in reason for reason in update.can_read(original))


def test_every_compatible_difference_has_a_row():
    assert {name for name, _, _ in ROWS} >= COMPATIBLE


@pytest.mark.parametrize(
    ("original", "update"),
    [
        (P, P | {"title": "t", "description": "d", "default": ""}),
        (P, {}),
        (P, True),
        (False, P),
        (P, {"oneOf": [P]}),
        ({"anyOf": [P]}, P),
        (
            OPEN | {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": P}},
            OPEN | A,
        ),
    ],
)
def test_a_change_that_reads_all_older_documents_is_compatible(original, update):
    assert schema(update).can_read(schema(original)) == []


def test_a_recursive_schema_is_compared():
    def tree(value: dict) -> JsonSchema:
        return schema(CLOSED | {"properties": {"value": value, "left": {"$ref": "#"}, "right": {"$ref": "#"}}})

    assert tree({"type": "number"}).can_read(tree(Q)) == []
    assert tree(Q).can_read(tree({"type": "number"})) != []


def test_the_order_of_keys_counts_for_the_text_only():
    one, other = JsonSchema('{"type": "string", "title": "t"}'), JsonSchema('{ "title":"t",\n"type":"string" }')
    assert one.text != other.text
    assert one.equality_key == other.equality_key


@pytest.mark.parametrize(
    "text",
    ["", "{", "3", '{"type": "no"}', '{"$ref": "#/definitions/x"}', '{"$ref": "other.json"}', '{"minLength": "x"}'],
)
def test_an_invalid_schema_is_refused(text):
    with pytest.raises(InvalidSchema):
        JsonSchema(text)


@pytest.mark.parametrize("base", [{}, {"$id": "http://example.com/root.json"}])
def test_references_are_resolved_through_other_schemas(base):
    inner = ReferencedSchema(json.dumps({"definitions": {"text": P}}), ())
    outer = ReferencedSchema('{"type":"object","properties":{"t":{"$ref":"inner.json#/definitions/text"}}}', ())
    resolved = [(Reference("inner.json", "i", 1), inner), (Reference("outer.json", "o", 1), outer)]
    found = schema(base | {"$ref": "outer.json"}, resolved)
    plain = schema(OPEN | {"properties": {"t": P}})
    assert found.can_read(plain) == plain.can_read(found) == []
    assert schema(OPEN | {"properties": {"t": Q}}).can_read(found) != []
