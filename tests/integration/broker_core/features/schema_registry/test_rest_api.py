"""The REST API of the schema registry: subjects, versions, ids, compatibility, settings, and the codes of errors."""

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient

from broker_core import EmbeddedBroker
from broker_core.version import __version__

STRING, INT, BYTES = ({"schema": f'"{name}"'} for name in ("string", "int", "bytes"))


def record(*fields: str, name: str = "R", **attributes: object) -> dict[str, object]:
    """Return the request for an Avro record whose fields have a default."""
    listed = [{"name": each, "type": "int", "default": 0} for each in fields]
    return {"schema": json.dumps({"type": "record", "name": name, "fields": listed, **attributes})}


def code(answer) -> int:
    return answer[1]["error_code"]


def test_a_schema_is_registered_and_found(ask):
    assert ask("POST", "/subjects/s/versions", STRING)[1]["id"] == 1
    assert ask("GET", "/subjects") == (200, ["s"])
    assert ask("GET", "/subjects/s/versions") == (200, [1])
    status, found = ask("GET", "/subjects/s/versions/latest")
    assert status == 200
    content = {"guid": found["guid"], "schemaType": "AVRO", "schema": '"string"'}
    assert found == {"subject": "s", "version": 1, "id": 1, **content}
    assert ask("GET", "/schemas/ids/1") == (200, content)
    assert ask("GET", "/schemas") == (200, [found])
    assert ask("GET", "/schemas/ids/1")[1]["schema"] == '"string"'
    assert ask("GET", f"/schemas/guids/{found['guid']}")[1]["schema"] == '"string"'
    assert ask("GET", f"/schemas/guids/{found['guid']}/ids") == (200, [{"context": ".", "id": 1}])
    assert ask("GET", "/schemas/ids/1/schema") == (200, '"string"')
    assert ask("GET", "/subjects/s/versions/1/schema") == (200, '"string"')
    assert ask("GET", "/schemas/ids/1/subjects") == (200, ["s"])
    assert ask("GET", "/schemas/ids/1/versions") == (200, [{"subject": "s", "version": 1}])
    assert ask("POST", "/subjects/s", STRING)[1]["version"] == 1
    assert [each["id"] for each in ask("GET", "/schemas")[1]] == [1]
    assert ask("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert ask("GET", "/contexts") == (200, ["."])
    assert ask("GET", "/") == (200, {})


def test_one_schema_in_other_words_or_under_another_subject_has_one_id(ask):
    ids = [
        ask("POST", f"/subjects/{subject}/versions", body)[1]["id"]
        for subject, body in [
            ("a", record("x", doc="ü")),
            ("a", {"schema": json.dumps({"doc": "ü", **json.loads(record("x")["schema"])}, indent=4)}),
            ("b", record("x", doc="ü")),
            ("b", record("x", "y")),
        ]
    ]
    assert ids == [1, 1, 1, 2]
    assert ask("GET", "/subjects/a/versions") == (200, [1])
    assert ask("GET", "/schemas/ids/1/subjects") == (200, ["a", "b"])


@pytest.mark.parametrize("subject", ["a/b", "ü", "x y", "%41", "a?b=c#d", "orders-value"])
def test_subjects_may_have_any_characters(ask, subject):
    path = f"/subjects/{quote(subject, safe='')}/versions"
    assert ask("POST", path, STRING)[0] == 200
    assert ask("GET", "/subjects") == (200, [subject])
    assert ask("GET", path) == (200, [1])


@pytest.fixture(scope="module")
def registered():
    """Return the address of one registry for all requests that are refused: they change nothing."""
    with EmbeddedBroker() as kafka:
        yield kafka.schema_registry_url


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/subjects/no/versions", None, 40401),
        ("GET", "/subjects/no/versions/1", None, 40401),
        ("GET", "/subjects/s/versions/9", None, 40402),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/first", None, 42202),
        ("GET", "/subjects/s/versions/99999999999", None, 42202),
        ("GET", "/schemas/ids/9", None, 40403),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/schemas/guids/x", None, 40403),
        ("POST", "/subjects/no", STRING, 40401),
        ("POST", "/subjects/s", INT, 40403),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"strin"'}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "XML"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "x", "references": [{"name": "y"}]}, 42201),
        ("POST", "/subjects/s/versions", b"{", 400),
        ("POST", "/subjects/s/versions", b'{"schema": "\\ud800"}', 400),
        ("POST", "/subjects/s/versions", b'{"schema": "x", "metadata": {"properties": {"a": NaN}}}', 400),
        ("POST", "/subjects/s/versions", STRING | {"id": "7"}, 400),
        ("POST", "/subjects/s/versions", STRING | {"version": []}, 400),
        ("POST", "/subjects/s/versions", STRING | {"metadata": []}, 400),
        ("POST", "/subjects/s/versions", STRING | {"metadata": {"properties": 5}}, 400),
        ("POST", "/subjects/s/versions", STRING | {"ruleSet": "x"}, 400),
        ("POST", "/subjects/s/versions", STRING | {"references": [{"name": "a", "subject": [], "version": 1}]}, 42201),
        ("PUT", "/config", {"normalize": "no"}, 400),
        ("POST", "/subjects/s/versions", b"[]", 400),
        ("POST", "/subjects/%20/versions", STRING, 42208),
        ("POST", "/subjects/s/versions", INT, 40901),
        ("POST", "/subjects/s/versions", STRING | {"id": 7}, 42205),
        ("DELETE", "/subjects/no", None, 40401),
        ("DELETE", "/subjects/no/versions/1", None, 40401),
        ("DELETE", "/subjects/s/versions/9", None, 40402),
        ("DELETE", "/subjects/s?permanent=true", None, 40405),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407),
        ("PUT", "/config", {"compatibility": "SOME"}, 42203),
        ("PUT", "/config", {"compatibilityPolicy": "a"}, 422),
        ("GET", "/config/s", None, 40408),
        ("DELETE", "/config/s", None, 40401),
        ("PUT", "/mode", {"mode": "SOME"}, 42204),
        ("GET", "/mode/s", None, 40409),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
        ("GET", "/nothing", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("POST", "/compatibility/subjects/s/versions/9", STRING, 40402),
        ("POST", "/compatibility/subjects/s/versions/latest", {"schema": "{"}, 42201),
    ],
)
def test_errors_have_their_codes(ask, registered, method, path, body, expected):
    assert ask("POST", "/subjects/s/versions", STRING, url=registered)[0] == 200
    status, found = ask(method, path, body, url=registered)
    assert (status, found["error_code"]) == (int(str(expected)[:3]), expected)
    assert found["message"]


def test_deleted_versions_stay_until_they_are_removed_for_good(ask):
    ask("POST", "/subjects/s/versions", STRING)
    ask("POST", "/subjects/s/versions", BYTES)
    assert ask("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert code(ask("DELETE", "/subjects/s/versions/1")) == 40406
    assert ask("GET", "/subjects/s/versions") == (200, [2])
    assert ask("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert ask("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    assert code(ask("POST", "/subjects/s", STRING)) == 40403
    assert ask("POST", "/subjects/s?deleted=true", STRING)[1]["version"] == 1
    assert ask("GET", "/schemas/ids/1")[0] == 200
    assert ask("DELETE", "/subjects/s") == (200, [2])
    assert code(ask("DELETE", "/subjects/s")) == 40404
    assert (ask("GET", "/subjects")[1], ask("GET", "/subjects?deleted=true")[1]) == ([], ["s"])
    assert ask("DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert code(ask("GET", "/schemas/ids/1")) == 40403
    assert ask("DELETE", "/subjects/s?permanent=true") == (200, [2])
    assert code(ask("DELETE", "/subjects/s?permanent=true")) == 40401


def test_a_deleted_subject_can_be_registered_again(ask):
    ask("POST", "/subjects/s/versions", STRING)
    ask("DELETE", "/subjects/s")
    # The level compares with what is left: nothing.
    assert ask("POST", "/subjects/s/versions", INT)[1]["id"] == 2
    assert ask("GET", "/subjects/s/versions") == (200, [2])
    ask("DELETE", "/subjects/s")
    again = ask("POST", "/subjects/s/versions", STRING)[1]
    assert (again["id"], again["version"]) == (1, 3)
    assert ask("GET", "/subjects/s/versions?deleted=true") == (200, [2, 3])


def test_an_id_is_not_given_twice(ask):
    ask("POST", "/subjects/s/versions", STRING)
    ask("DELETE", "/subjects/s")
    ask("DELETE", "/subjects/s?permanent=true")
    assert ask("POST", "/subjects/s/versions", INT)[1]["id"] == 2


LEVELS = [
    # The level; whether a field with a default may be added, a field without default be removed, and whether the same
    # changes are checked against the version before the latest.
    ("NONE", True, True, True),
    ("BACKWARD", True, True, True),
    ("BACKWARD_TRANSITIVE", True, True, False),
    ("FORWARD", True, False, True),
    ("FORWARD_TRANSITIVE", True, False, True),
    ("FULL", True, False, True),
    ("FULL_TRANSITIVE", True, False, False),
]


@pytest.mark.parametrize(("level", "may_add", "may_remove", "may_skip"), LEVELS)
def test_the_level_of_a_subject_decides(ask, level, may_add, may_remove, may_skip):
    def schema(*fields: dict) -> dict:
        return {"schema": json.dumps({"type": "record", "name": "R", "fields": list(fields)})}

    def is_compatible(subject: str, body: dict, version: str = "") -> bool:
        return ask("POST", f"/compatibility/subjects/{subject}/versions{version}", body)[1]["is_compatible"]

    a, with_default = {"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}
    assert ask("PUT", "/config/s", {"compatibility": level.lower()}) == (200, {"compatibility": level})
    assert ask("GET", "/config/s") == (200, {"compatibilityLevel": level})
    ask("POST", "/subjects/s/versions", schema(a))
    assert is_compatible("s", schema(a, with_default)) is may_add
    assert is_compatible("s", schema(), "/latest") is may_remove
    # Version 1 has no field b, version 2 has it with a default; version 3 wants it.
    ask("PUT", "/config/t", {"compatibility": "NONE"})
    ask("POST", "/subjects/t/versions", schema())
    ask("POST", "/subjects/t/versions", schema(with_default))
    ask("PUT", "/config/t", {"compatibility": level})
    wanted = {"name": "b", "type": "int"}
    assert is_compatible("t", schema(wanted)) is may_skip
    assert ask("POST", "/subjects/t/versions", schema(wanted))[0] == (200 if may_skip else 409)


def test_a_level_that_is_changed_later_applies_to_the_next_schema(ask):
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    ask("POST", "/subjects/s/versions", STRING)
    refused = ask("POST", "/subjects/s/versions", INT)
    assert code(refused) == 40901
    assert "TYPE_MISMATCH" in refused[1]["message"]
    assert "oldSchemaVersion: 1" in refused[1]["message"]
    assert ask("PUT", "/config", {"compatibility": "NONE"})[0] == 200
    assert ask("POST", "/subjects/s/versions", INT)[0] == 200
    assert ask("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "NONE"})
    assert ask("PUT", "/config/s", {"compatibility": "FULL"})[0] == 200
    assert code(ask("POST", "/subjects/s/versions", BYTES)) == 40901
    assert ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert ask("POST", "/subjects/s/versions", BYTES)[0] == 200
    assert ask("DELETE", "/config") == (200, {"compatibilityLevel": "NONE"})
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


def test_another_type_of_schema_is_incompatible(ask):
    ask("POST", "/subjects/s/versions", STRING)
    assert code(ask("POST", "/subjects/s/versions", {"schema": '{"type": "string"}', "schemaType": "JSON"})) == 40901


def test_reasons_are_returned_when_they_are_asked_for(ask):
    ask("POST", "/subjects/s/versions", STRING)
    found = ask("POST", "/compatibility/subjects/s/versions/1?verbose=true", INT)[1]
    assert found["is_compatible"] is False
    assert "TYPE_MISMATCH" in found["messages"][0]
    assert ask("POST", "/compatibility/subjects/new/versions?verbose=true", INT)[1] == {
        "is_compatible": True,
        "messages": [],
    }


def test_schemas_are_compared_within_their_compatibility_group(ask):
    config = {"compatibilityGroup": "major"}
    assert ask("PUT", "/config/s", config) == (200, config)
    assert ask("GET", "/config/s") == (200, config | {"compatibilityLevel": "BACKWARD"})
    one, two = ({"metadata": {"properties": {"major": major}}} for major in ("1", "2"))
    assert ask("POST", "/subjects/s/versions", STRING | one)[0] == 200
    assert code(ask("POST", "/subjects/s/versions", INT | one)) == 40901
    assert ask("POST", "/subjects/s/versions", INT | two)[0] == 200
    assert ask("POST", "/compatibility/subjects/s/versions", BYTES | two) == (200, {"is_compatible": False})
    # The newest schema of the group counts, not the newest of the subject; a schema without the property is a group.
    assert ask("POST", "/compatibility/subjects/s/versions/latest", BYTES | one) == (200, {"is_compatible": True})
    assert ask("POST", "/compatibility/subjects/s/versions", BYTES | one) == (200, {"is_compatible": True})
    assert ask("POST", "/compatibility/subjects/s/versions", record("a")) == (200, {"is_compatible": True})


def test_modes_forbid_and_allow(ask):
    assert ask("GET", "/mode") == (200, {"mode": "READWRITE"})
    ask("POST", "/subjects/s/versions", STRING)
    assert ask("PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert code(ask("POST", "/subjects/s/versions", INT)) == 42205
    assert code(ask("DELETE", "/subjects/s")) == 42205
    assert ask("POST", "/subjects/other/versions", STRING)[0] == 200
    assert ask("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert ask("PUT", "/mode/new", {"mode": "IMPORT"})[0] == 200
    imported = ask("POST", "/subjects/new/versions", INT | {"id": 77, "version": 5})[1]
    assert (imported["id"], imported["version"]) == (77, 5)
    assert code(ask("POST", "/subjects/new/versions", BYTES | {"id": 77})) == 42205
    assert code(ask("POST", "/subjects/new/versions", BYTES)) == 42205
    assert ask("POST", "/subjects/next/versions", BYTES)[1]["id"] == 78


@pytest.mark.parametrize(
    ("scope", "gone"),
    [("", ["", ":.staging:", ":.staging:s", "s", "t"]), (":.staging:", [":.staging:", ":.staging:s"]), ("s", ["s"])],
)
def test_the_modes_of_a_context_are_deleted_with_its_own(ask, scope, gone):
    subjects = ["", ":.staging:", ":.staging:s", "s", "t"]
    for subject in subjects:
        ask("PUT", f"/mode/{subject}".rstrip("/"), {"mode": "IMPORT"})
    assert ask("DELETE", f"/mode/{scope}?recursive=true".replace("/?", "?")) == (200, {"mode": "IMPORT"})
    assert [each for each in subjects if each and ask("GET", f"/mode/{each}")[0] == 404] == [
        each for each in gone if each
    ]
    assert ask("GET", "/mode")[1]["mode"] == ("READWRITE" if "" in gone else "IMPORT")
    # A context without a mode of its own has nothing to answer.
    assert ask("DELETE", "/mode/:.other:?recursive=true") == (200, {})


def test_the_server_describes_itself(ask, kafka):
    cluster_id = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).cluster_id
    clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": "schema-registry"}
    assert ask("GET", "/v1/metadata/id") == (200, {"scope": {"path": [], "clusters": clusters}, "id": ""})
    assert ask("GET", "/v1/metadata/version") == (200, {"version": __version__})
    assert ask("GET", "/v1/metadata/deployment") == (200, {"attributes": []})


def test_referenced_schemas_are_resolved_and_protected(ask):
    inner = record("x", name="ns.Inner")
    outer = {
        "schema": json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "ns.Inner"}]}),
        "references": [{"name": "ns.Inner", "subject": "inner", "version": 1}],
    }
    assert code(ask("POST", "/subjects/outer/versions", outer)) == 42201
    ask("POST", "/subjects/inner/versions", inner)
    assert ask("POST", "/subjects/outer/versions", outer)[1]["id"] == 2
    assert ask("GET", "/subjects/outer/versions/1")[1]["references"] == outer["references"]
    assert ask("GET", "/subjects/inner/versions/1/referencedby") == (200, [2])
    assert code(ask("DELETE", "/subjects/inner/versions/1")) == 42206
    assert code(ask("DELETE", "/subjects/inner")) == 42206
    assert ask("POST", "/subjects/outer", outer)[1]["version"] == 1
    ask("DELETE", "/subjects/outer")
    assert ask("DELETE", "/subjects/inner") == (200, [1])
    # A removal for good would leave the deleted schema without its reference.
    assert code(ask("DELETE", "/subjects/inner?permanent=true")) == 42206


def test_the_order_of_keys_in_json_schemas(ask):
    one = {"schema": '{"type": "string", "title": "t"}', "schemaType": "JSON"}
    other = {"schema": '{"title": "t", "type": "string"}', "schemaType": "JSON"}
    assert ask("POST", "/subjects/a/versions", one)[1]["id"] == 1
    assert ask("POST", "/subjects/a/versions", other)[1]["id"] == 1
    assert ask("POST", "/subjects/b/versions", other)[1]["id"] == 2
    normal = ask("POST", "/subjects/c/versions?normalize=true", one)[1]["id"]
    assert ask("GET", f"/schemas/ids/{normal}")[1]["schema"] == '{"title":"t","type":"string"}'
    assert normal == ask("POST", "/subjects/d/versions?normalize=true", other)[1]["id"]


def test_a_protobuf_descriptor_and_its_text_are_one_schema(ask):
    text = {"schema": 'syntax = "proto3"; message M { string s = 1; }', "schemaType": "PROTOBUF"}
    assert ask("POST", "/subjects/s/versions", text)[1]["id"] == 1
    serialized = ask("GET", "/subjects/s/versions/1?format=serialized")[1]["schema"]
    assert ask("POST", "/subjects/s/versions", {"schema": serialized, "schemaType": "PROTOBUF"})[1]["id"] == 1
    assert "message M {" in ask("GET", "/schemas/ids/1")[1]["schema"]


def test_metadata_and_rules_are_part_of_a_schema(ask):
    marked = STRING | {"metadata": {"properties": {"owner": "me"}}, "ruleSet": {"domainRules": []}}
    assert ask("POST", "/subjects/s/versions", STRING)[1]["id"] == 1
    assert ask("POST", "/subjects/s/versions", marked)[1]["id"] == 2
    assert ask("GET", "/schemas/ids/2")[1]["metadata"] == marked["metadata"]
    assert ask("GET", "/subjects/s/metadata?key=owner&value=me")[1]["version"] == 2
    assert code(ask("GET", "/subjects/s/metadata?key=owner&value=you")) == 40403


def test_contexts_count_their_own_ids(ask):
    assert ask("POST", "/subjects/s/versions", STRING)[1]["id"] == 1
    assert ask("POST", "/subjects/:.staging:s/versions", INT)[1]["id"] == 1
    assert ask("POST", "/subjects/:.:s/versions", STRING)[1]["id"] == 1
    assert ask("GET", "/contexts") == (200, [".", ".staging"])
    assert ask("GET", "/schemas/ids/1?subject=:.staging:s")[1]["schema"] == '"int"'
    assert ask("GET", "/schemas/ids/1")[1]["schema"] == '"string"'


def test_an_empty_context_can_be_deleted(ask):
    ask("POST", "/subjects/:.staging:s/versions", STRING)
    ask("DELETE", "/subjects/:.staging:s")
    assert code(ask("DELETE", "/contexts/:.staging:")) == 42211
    ask("DELETE", "/subjects/:.staging:s?permanent=true")
    assert ask("DELETE", "/contexts/:.staging:") == (204, None)
    assert ask("GET", "/contexts") == (200, ["."])


@pytest.mark.parametrize("context", [":.staging:", ".staging", "staging"])
def test_a_path_names_the_context_of_its_subjects(ask, context):
    base = f"/contexts/{context}"
    ask("POST", "/subjects/s/versions", STRING)
    assert ask("POST", f"{base}/subjects/s/versions", INT)[1]["id"] == 1
    assert ask("GET", f"{base}/subjects/s/versions/1")[1]["subject"] == ":.staging:s"
    assert ask("GET", f"{base}/subjects") == (200, [":.staging:s"])
    assert [each["subject"] for each in ask("GET", f"{base}/schemas")[1]] == [":.staging:s"]
    assert ask("GET", f"{base}/schemas/ids/1")[1]["schema"] == '"int"'
    assert ask("GET", f"{base}/schemas/ids/1/subjects") == (200, [":.staging:s"])
    assert ask("GET", "/contexts/./subjects/s/versions/1")[1]["schema"] == '"string"'
    assert ask("PUT", f"{base}/config", {"compatibility": "NONE"})[0] == 200
    assert ask("GET", "/config/:.staging:s?defaultToGlobal=true")[1]["compatibilityLevel"] == "NONE"
    assert ask("GET", "/config/s?defaultToGlobal=true")[1]["compatibilityLevel"] == "BACKWARD"
    assert ask("POST", f"{base}/compatibility/subjects/s/versions/1", BYTES) == (200, {"is_compatible": True})
    assert ask("PUT", f"{base}/mode", {"mode": "READONLY"})[0] == 200
    assert code(ask("POST", f"{base}/subjects/s/versions", BYTES)) == 42205
    assert ask("POST", "/subjects/t/versions", BYTES)[0] == 200
    assert code(ask("GET", "/contexts/a:b/subjects")) == 400


def test_a_reference_without_a_context_is_in_that_of_its_schema(ask):
    inner, other = record("x", name="Inner"), record("y", name="Inner")
    outer = {
        "schema": json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}),
        "references": [{"name": "Inner", "subject": "inner", "version": 1}],
    }
    ask("POST", "/subjects/:.staging:inner/versions", inner)
    assert code(ask("POST", "/subjects/outer/versions", outer)) == 42201
    assert ask("POST", "/contexts/.staging/subjects/outer/versions", outer)[0] == 200
    ask("POST", "/subjects/inner/versions", other)
    assert ask("GET", "/subjects/:.staging:inner/versions/1/referencedby") == (200, [2])
    assert ask("GET", "/subjects/inner/versions/1/referencedby") == (200, [])
    assert code(ask("DELETE", "/subjects/:.staging:inner")) == 42206
    assert ask("DELETE", "/subjects/inner") == (200, [1])


def test_a_reference_to_another_type_of_schema_is_refused_with_the_cause(ask):
    ask("POST", "/subjects/inner/versions", {"schema": '{"type": "object"}', "schemaType": "JSON"})
    outer = STRING | {"references": [{"name": "Inner", "subject": "inner", "version": 1}]}
    status, refused = ask("POST", "/subjects/outer/versions", outer)
    assert (status, refused["error_code"]) == (422, 42201)
    assert 'the reference "Inner" to subject "inner" and version 1 is a schema of type JSON' in refused["message"]


def test_an_alias_stands_for_its_subject(ask):
    ask("POST", "/subjects/orders/versions", STRING)
    assert ask("PUT", "/config/old-orders", {"alias": "orders"}) == (200, {"alias": "orders"})
    assert ask("GET", "/subjects/old-orders/versions/latest")[1]["subject"] == "orders"
    assert ask("POST", "/compatibility/subjects/old-orders/versions/1", INT) == (200, {"is_compatible": False})
    assert code(ask("POST", "/subjects/old-orders/versions", INT)) == 40901
    assert ask("GET", "/schemas/ids/1/versions?subject=old-orders") == (200, [{"subject": "orders", "version": 1}])
    assert ask("DELETE", "/config/old-orders")[1]["alias"] == "orders"
    assert code(ask("GET", "/subjects/old-orders/versions/latest")) == 40401


def test_new_schemas_are_validated_as_the_settings_say(ask):
    reserved = {"schema": '{"type": "object", "properties": {"$$a": {}}}', "schemaType": "JSON"}
    wrong_default = {
        "schema": json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": "a"}]})
    }
    assert ask("POST", "/subjects/a/versions", reserved)[0] == 200
    ask("PUT", "/config/b", {"validateFields": True})
    assert "$$a" in ask("POST", "/subjects/b/versions", reserved)[1]["message"]
    assert code(ask("POST", "/subjects/c/versions", wrong_default)) == 42201
    ask("PUT", "/config/c", {"validateNewSchemas": False})
    assert ask("POST", "/subjects/c/versions", wrong_default)[0] == 200
    assert "validateRules is not supported" in ask("PUT", "/config/c", {"validateRules": True})[1]["message"]
    assert ask("PUT", "/config/c", {"validateRules": False})[0] == 200


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_a_read_only_mode_protects_settings(ask, mode):
    ask("PUT", "/config/s", {"compatibility": "FULL"})
    assert ask("PUT", "/mode", {"mode": mode}) == (200, {"mode": mode})
    for method, path in (("PUT", "/config"), ("PUT", "/config/s"), ("DELETE", "/config/s"), ("DELETE", "/config")):
        assert code(ask(method, path, {"compatibility": "NONE"})) == 42205, (method, path)
    assert code(ask("POST", "/subjects/s/versions", STRING)) == 42205
    assert ask("GET", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    ask("PUT", "/mode", {"mode": "READWRITE"})
    assert ask("PUT", "/config/s", {"compatibility": "NONE"})[0] == 200


def test_lists_have_pages(ask):
    for name in "abcd":
        ask("POST", f"/subjects/{name}/versions", STRING)
    assert ask("GET", "/subjects?offset=1&limit=2") == (200, ["b", "c"])
    assert ask("GET", "/subjects?subjectPrefix=c") == (200, ["c"])
    assert [each["subject"] for each in ask("GET", "/schemas?limit=1&latestOnly=true")[1]] == ["a"]


def test_a_large_schema_is_kept_and_a_larger_one_refused(ask):
    large = record(*(f"field{number}" for number in range(5000)))
    assert ask("POST", "/subjects/s/versions", large)[0] == 200
    assert len(ask("GET", "/schemas/ids/1")[1]["schema"]) > 200_000
    assert code(ask("POST", "/subjects/t/versions", record("x", doc="d" * 2_000_000))) == 42209
    assert ask("GET", "/subjects") == (200, ["s"])


def test_threads_that_register_at_once_agree(ask):
    def register(number: int) -> tuple[int, int]:
        same = ask("POST", "/subjects/same/versions", STRING)[1]["id"]
        return same, ask("POST", f"/subjects/s{number}/versions", record(f"f{number}"))[1]["id"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(register, range(24)))
    assert len({same for same, _ in found}) == 1
    assert len({each for _, each in found}) == 24
    assert ask("GET", "/subjects/same/versions") == (200, [1])


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE", "IMPORT"])
def test_a_registered_schema_is_found_again_in_every_mode(ask, mode):
    ask("POST", "/subjects/s/versions", STRING)
    assert ask("PUT", "/mode/s?force=true", {"mode": mode})[0] == 200
    found = ask("POST", "/subjects/s/versions", STRING)
    assert (found[0], found[1].get("id"), found[1].get("version")) == (200, 1, 1)
    assert ask("POST", "/subjects/s/versions", {**STRING, "id": 1})[0] == 200
    assert code(ask("POST", "/subjects/s/versions", INT)) == 42205


def test_a_version_that_a_client_names_is_the_next_one(ask):
    ask("POST", "/subjects/s/versions", record("a"))
    assert code(ask("POST", "/subjects/s/versions", {**record("a", "b"), "version": 7})) == 42201
    assert ask("POST", "/subjects/s/versions", {**record("a", "b"), "version": 2})[1]["version"] == 2
    assert ask("GET", "/subjects/s/versions") == (200, [1, 2])


def test_a_schema_with_its_references_written_out_is_the_one_with_references(ask):
    ask("POST", "/subjects/inner/versions", record("x", name="Inner"))
    inner = json.loads(record("x", name="Inner")["schema"])
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "a", "type": "Inner"}, {"name": "b", "type": "Inner"}],
    }
    references = [{"name": "Inner", "subject": "inner", "version": 1}]
    assert ask("POST", "/subjects/s/versions", {"schema": json.dumps(outer), "references": references})[1]["id"] == 2
    outer["fields"][0]["type"] = inner
    written_out = {"schema": json.dumps(outer)}
    for path in ("/subjects/s", "/subjects/s/versions"):
        assert ask("POST", path, written_out)[1]["version"] == 1
    for path in ("/schemas/ids/2", "/subjects/s/versions/1"):
        assert json.loads(ask("GET", f"{path}?format=resolved")[1]["schema"]) == outer
    outer["fields"][0]["type"] = {**inner, "doc": "another one"}
    assert code(ask("POST", "/subjects/s", {"schema": json.dumps(outer)})) == 40403


def test_a_setting_that_does_not_exist_is_ignored(ask):
    assert ask("PUT", "/config/s", {"compatibilityLevel": "FULL", "compatibility": "NONE"}) == (
        200,
        {"compatibility": "NONE"},
    )
    assert ask("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})


def test_an_import_begins_without_deleted_schemas(ask):
    ask("POST", "/subjects/s/versions", STRING)
    ask("DELETE", "/subjects/s")
    assert ask("PUT", "/mode/s", {"mode": "IMPORT"})[0] == 200
    assert ask("GET", "/subjects?deleted=true") == (200, [])
    assert ask("POST", "/subjects/s/versions", {**INT, "id": 1, "version": 1})[1]["id"] == 1


def test_a_missing_subject_is_missing_in_a_read_only_registry_too(ask):
    ask("PUT", "/mode", {"mode": "READONLY"})
    for path in ("/subjects/s", "/subjects/s/versions/1"):
        assert code(ask("DELETE", path)) == 40401
