"""Protobuf schemas of the registry: the table of differences, row by row, and both forms of a schema."""

import base64

import pytest

pytest.importorskip("proto_schema_parser", reason="needs the extra registry")

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from broker_core.features.schema_registry.errors import InvalidSchema
from broker_core.features.schema_registry.parsed_schema import Reference, ReferencedSchema
from broker_core.features.schema_registry.protobuf_compatibility import COMPATIBLE, Differences
from broker_core.features.schema_registry.protobuf_schemas import ProtobufSchema


def proto(body: str, syntax: str = "proto3", package: str = "p") -> str:
    return f'syntax = "{syntax}"; package {package}; {body}'


def message(body: str, syntax: str = "proto3") -> str:
    return proto(f"message M {{ {body} }}", syntax)


IN_ONEOF = "oneof o { int32 a = 1; int32 b = 2; }"

# The name of the difference, the earlier schema, the later one. A name in COMPATIBLE is a compatible change.
ROWS = [
    ("PACKAGE_CHANGED", proto("message M {}"), proto("message M {}", package="q")),
    ("MESSAGE_ADDED", proto("message M {}"), proto("message M {} message N {}")),
    ("MESSAGE_REMOVED", proto("message M {} message N {}"), proto("message M {}")),
    ("MESSAGE_REMOVED", message("message N {}"), message("")),
    ("MESSAGE_MOVED", proto("message M {} message N {}"), proto("message N {} message M {}")),
    ("ENUM_ADDED", message(""), message("enum E { A = 0; }")),
    ("ENUM_REMOVED", message("enum E { A = 0; }"), message("")),
    ("ENUM_CONST_ADDED", message("enum E { A = 0; }"), message("enum E { A = 0; B = 1; }")),
    ("ENUM_CONST_REMOVED", message("enum E { A = 0; B = 1; }"), message("enum E { A = 0; }")),
    ("ENUM_CONST_CHANGED", message("enum E { A = 0; }"), message("enum E { B = 0; }")),
    ("FIELD_ADDED", message(""), message("int32 a = 1;")),
    ("FIELD_REMOVED", message("int32 a = 1;"), message("")),
    ("FIELD_NAME_CHANGED", message("int32 a = 1;"), message("int32 b = 1;")),
    ("FIELD_KIND_CHANGED", message("int32 a = 1;"), message("M a = 1;")),
    ("FIELD_KIND_CHANGED", message("map<string, string> a = 1;"), message("M a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", message("int32 a = 1;"), message("string a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", message("int32 a = 1;"), message("sint32 a = 1;")),
    ("FIELD_SCALAR_KIND_CHANGED", message("map<string, int32> a = 1;"), message("map<string, string> a = 1;")),
    (
        "FIELD_NAMED_TYPE_CHANGED",
        message("N a = 1; message N {} message O {}"),
        message("O a = 1; message N {} message O {}"),
    ),
    ("FIELD_NUMERIC_LABEL_CHANGED", message("int32 a = 1;"), message("repeated int32 a = 1;")),
    ("FIELD_STRING_OR_BYTES_LABEL_CHANGED", message("string a = 1;"), message("repeated string a = 1;")),
    ("REQUIRED_FIELD_ADDED", message("", "proto2"), message("required int32 a = 1;", "proto2")),
    ("REQUIRED_FIELD_REMOVED", message("required int32 a = 1;", "proto2"), message("", "proto2")),
    ("ONEOF_ADDED", message("int32 a = 1;"), message("oneof o { int32 a = 1; }")),
    ("ONEOF_REMOVED", message("oneof o { int32 a = 1; }"), message("int32 a = 1;")),
    ("ONEOF_FIELD_ADDED", message("oneof o { int32 a = 1; }"), message(IN_ONEOF)),
    ("ONEOF_FIELD_REMOVED", message(IN_ONEOF), message("oneof o { int32 a = 1; }")),
    ("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", message(IN_ONEOF), message("oneof o { int32 a = 1; } int32 b = 2;")),
    ("MULTIPLE_FIELDS_MOVED_TO_ONEOF", message("int32 a = 1; int32 b = 2;"), message(IN_ONEOF)),
    ("FIELD_MOVED_TO_EXISTING_ONEOF", message("oneof o { int32 a = 1; } int32 b = 2;"), message(IN_ONEOF)),
]


@pytest.mark.parametrize(("name", "original", "update"), ROWS)
def test_each_difference_is_found_and_decides(name, original, update):
    original, update = ProtobufSchema(original), ProtobufSchema(update)
    found = Differences(original.files, update.files).between(original.file, update.file).found
    assert name in {kind for kind, _ in found}
    assert any(name in reason for reason in update.can_read(original)) is (name not in COMPATIBLE)


def test_every_compatible_difference_has_a_row():
    assert {name for name, _, _ in ROWS} >= COMPATIBLE


@pytest.mark.parametrize(
    ("original", "update"),
    [
        (message("int32 a = 1;"), message("int64 a = 1;")),
        (message("int32 a = 1;"), message("E a = 1; enum E { A = 0; }")),
        (message("string a = 1;"), message("bytes a = 1;")),
        (message("fixed32 a = 1;"), message("sfixed32 a = 1;")),
        (message("int32 a = 1;"), message("optional int32 a = 1;")),
        (message("M a = 1;"), message(".p.M a = 1;")),
        (message("oneof o { int32 a = 1; }"), message("")),
    ],
)
def test_types_of_one_encoding_are_interchangeable(original, update):
    assert ProtobufSchema(update).can_read(ProtobufSchema(original)) == []


FULL = """
// A file with all kinds of declarations.
syntax = "proto2";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "org.\\"x\\"";
message M {
  required string s = 1 [default = "tab\\there", json_name = "S"];
  optional E e = 2 [default = B, deprecated = true];
  repeated int32 packed = 3 [packed = true];
  map<string, N> by_name = 4;
  oneof choice { N n = 5; bytes raw = 6; }
  optional google.protobuf.Timestamp at = 7;
  reserved 20, 30 to 40;
  reserved "old";
  extensions 100 to max;
  message N { optional double d = 1; }
  enum E { option allow_alias = true; A = 0; B = 1; C = 1; reserved 7 to max; }
}
extend M { optional int32 more = 100; }
service S { rpc Get (M) returns (stream M.N) { option deprecated = true; } }
"""


@pytest.mark.parametrize(
    "text",
    [FULL, message("optional int32 a = 1; repeated M more = 2;"), 'edition = "2023"; message M { string s = 1; }'],
)
def test_all_forms_of_a_schema_have_one_text(text):
    schema = ProtobufSchema(text)
    assert ProtobufSchema(schema.text).text == schema.text
    assert ProtobufSchema(schema.formatted("serialized")).text == schema.text


def test_the_descriptor_is_that_of_protobuf_itself():
    descriptor = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(descriptor)
    schema = ProtobufSchema(base64.b64encode(descriptor.SerializeToString()).decode())
    again = FileDescriptorProto.FromString(base64.b64decode(ProtobufSchema(schema.text).formatted("serialized")))
    again.name = descriptor.name
    for field in descriptor.message_type[0].field:
        # The compiler leaves out what follows from the name.
        field.ClearField("json_name")
    assert again == descriptor


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message {", "line 1:9"),
        (message("int32 a = 1; int32 b = 1;"), "duplicate"),
        (message("Unknown a = 1;"), "Unknown"),
        (proto('import "missing.proto";'), "missing.proto"),
        ('syntax = "proto9";', "proto9"),
        (message("int32 a = 1 [no_such_option = 3];"), "no_such_option"),
        (message("optional group G = 1 { }", "proto2"), "group G"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_reason(text, reason):
    with pytest.raises(InvalidSchema, match=reason):
        ProtobufSchema(text)


def test_imported_messages_are_compared():
    def with_import(inner: str) -> ProtobufSchema:
        imported = ReferencedSchema(proto(f"message In {{ {inner} }}", package="q"), ())
        text = 'syntax = "proto3"; package p; import "in.proto"; message M { q.In in = 1; }'
        return ProtobufSchema(text, [(Reference("in.proto", "in", 1), imported)])

    assert with_import("int32 a = 1; string b = 2;").can_read(with_import("int32 a = 1;")) == []
    assert with_import("string a = 1;").can_read(with_import("int32 a = 1;")) != []
