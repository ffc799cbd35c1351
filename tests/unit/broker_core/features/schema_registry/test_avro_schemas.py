"""Avro schemas of the registry: one text for one schema, what is refused, and the rules of schema resolution."""

import json

import pytest

pytest.importorskip("avro", reason="needs the extra registry")

from broker_core.features.schema_registry.avro_schemas import AvroSchema
from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.parsed_schema import Reference, ReferencedSchema


def record(*fields: object, name: str = "R", **attributes: object) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **attributes})


def field(name: str, kind: object, **attributes: object) -> dict[str, object]:
    return {"name": name, "type": kind, **attributes}


A = field("a", "int")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"string"', '{"type": "string"}'),
        ("string", '"string"'),
        (
            record(A, doc="ü"),
            json.dumps({"fields": [{"type": "int", "name": "a"}], "doc": "ü", "name": "R", "type": "record"}),
        ),
        (record(A, name="x.y.R"), record(A, name="R", namespace="x.y")),
        (
            record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]}), name="x.R"),
            record(field("e", {"symbols": ["A"], "name": "x.E", "type": "enum"}), name="x.R"),
        ),
    ],
)
def test_the_form_of_a_text_does_not_count(one, other):
    assert AvroSchema(one).text == AvroSchema(other).text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(A), record(A, doc="other")),
        (record(field("a", "int", default=1)), record(field("a", "int", default=2))),
        (record(A, aliases=["S"]), record(A)),
        (record(A, field("b", "int")), record(field("b", "int"), A)),
    ],
)
def test_documentation_defaults_aliases_and_the_order_of_fields_count(one, other):
    assert AvroSchema(one).text != AvroSchema(other).text


def test_a_canonical_text_is_parsed_to_itself():
    text = AvroSchema(
        record(field("next", ["null", "R"], default=None), field("d", {"type": "int", "logicalType": "date"}))
    ).text
    assert AvroSchema(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        "3",
        '"strin"',
        '["int", "int"]',
        '{"type": "record", "name": "R"}',
        record(A, A),
        record(field("a b", "int")),
        record(field("a", "int", default="x")),
        record(field("a", {"type": "array", "items": "int"}, default=[1, "x"])),
        record(field("a", "Unknown")),
        record(A, name="1R"),
        "[" * 100_000,
    ],
)
def test_an_invalid_schema_is_refused(text):
    with pytest.raises(InvalidSchema):
        AvroSchema(text, is_new=True)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("bytes", "\u00ff"),
        (["null", "int"], None),
        (["null", "int"], 3),
        ({"type": "array", "items": "long"}, [1, 2]),
        ({"type": "map", "values": "double"}, {"x": 1}),
        ({"type": "record", "name": "In", "fields": [field("x", "int", default=1), field("y", "string")]}, {"y": ""}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
        ("boolean", False),
    ],
)
def test_a_default_of_the_type_is_accepted(kind, default):
    AvroSchema(record(field("a", kind, default=default)), is_new=True)


def test_a_stored_schema_keeps_a_default_that_is_no_longer_accepted():
    AvroSchema(record(field("a", "int", default="x")))


def test_a_referenced_type_stays_a_name():
    inner = ReferencedSchema(record(A, name="ns.Inner"), ())
    middle = ReferencedSchema(
        record(field("i", "ns.Inner"), name="ns.Middle"), [(Reference("ns.Inner", "s", 1), inner)]
    )
    schema = AvroSchema(
        record(field("m", "Middle"), field("i", "Inner"), name="ns.Outer"), [(Reference("ns.Middle", "m", 1), middle)]
    )
    assert [each["type"] for each in json.loads(schema.text)["fields"]] == ["ns.Middle", "ns.Inner"]


@pytest.mark.parametrize(
    ("reader", "writer", "can_read"),
    [
        (record(A, field("b", "int", default=0)), record(A), True),
        (record(A, field("b", "int")), record(A), False),
        (record(A), record(A, field("b", "int")), True),
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('"bytes"', '"string"', True),
        ('["null", "int"]', '"int"', True),
        ('"int"', '["null", "int"]', False),
        (record(field("b", "int", aliases=["a"])), record(A), True),
        (record(A, name="S"), record(A), False),
        (record(A, name="S", aliases=["R"]), record(A), True),
        (
            '{"type": "enum", "name": "E", "symbols": ["A"]}',
            '{"type": "enum", "name": "E", "symbols": ["A", "B"]}',
            False,
        ),
        (
            '{"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}',
            '{"type": "enum", "name": "E", "symbols": ["A", "B"]}',
            True,
        ),
        ('{"type": "fixed", "name": "F", "size": 1}', '{"type": "fixed", "name": "F", "size": 2}', False),
        ('{"type": "map", "values": "long"}', '{"type": "map", "values": "int"}', True),
        (record(field("n", ["null", "R"])), record(field("n", ["null", "R"])), True),
    ],
)
def test_schema_resolution_decides_about_compatibility(reader, writer, can_read):
    assert (not AvroSchema(reader).can_read(AvroSchema(writer))) is can_read


def test_errors_are_compared_as_records() -> None:
    def wrapped(*fields: str) -> AvroSchema:
        listed = [{"name": each, "type": "string"} for each in fields]
        failure = {"type": "error", "name": "Failure", "doc": "error", "fields": listed}
        return AvroSchema(json.dumps({"type": "array", "items": ["null", failure]}))

    assert wrapped("a").can_read(wrapped("a", "error")) == []
    assert "MISSING_UNION_BRANCH" in wrapped("a", "error").can_read(wrapped("a"))[0]
