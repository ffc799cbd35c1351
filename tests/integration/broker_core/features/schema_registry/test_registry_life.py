"""The registry beside its broker: it starts on first use, keeps its state in `_schemas`, and ends with it."""

import json
import re
import signal

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError
from broker_core.features.schema_registry.service import start_registry
from tests.support.broker_core.broker_command import DEADLINE_S, running, said_without

STRING, INT = {"schema": '"string"'}, {"schema": '"int"'}


def register(ask, kafka, subject, body):
    return ask("POST", f"/subjects/{subject}/versions", body, url=kafka.schema_registry_url)


def subjects(ask, kafka):
    return ask("GET", "/subjects", url=kafka.schema_registry_url)[1]


def test_it_starts_on_first_use_and_ends_with_the_broker(ask):
    with EmbeddedBroker() as kafka:
        assert kafka.topics == {}
        url = kafka.schema_registry_url
        assert kafka.schema_registry_url == url
        assert register(ask, kafka, "s", STRING)[0] == 200
        assert kafka.topics == {"_schemas": 1}
    with pytest.raises(ConnectionRefusedError):
        ask("GET", "/subjects", url=url)
    with pytest.raises(RuntimeError, match="not running"):
        _ = kafka.schema_registry_url


def test_reading_an_empty_registry_creates_no_topic(kafka, ask):
    assert ask("GET", "/subjects") == (200, [])
    assert kafka.topics == {}


def test_records_have_the_form_of_confluents_registry(kafka, ask):
    ask("POST", "/subjects/s/versions", STRING)
    ask("PUT", "/config/s", {"compatibility": "NONE"})
    ask("PUT", "/mode", {"mode": "READWRITE"})
    ask("DELETE", "/subjects/s")
    found = [(json.loads(each.key), json.loads(each.value)) for each in kafka.records("_schemas")]
    assert found == [
        (
            {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1},
            {"subject": "s", "version": 1, "id": 1, "schema": '"string"', "deleted": False},
        ),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "MODE", "magic": 0}, {"mode": "READWRITE"}),
        ({"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}, {"subject": "s", "version": 1}),
    ]


def test_records_that_others_have_written_are_read(kafka, ask):
    key = {"keytype": "SCHEMA", "subject": "s", "version": 3, "magic": 1}
    value = {"subject": "s", "version": 3, "id": 40, "md5": "x", "schema": '"string"', "deleted": False}
    noop = {"keytype": "NOOP", "magic": 0}
    kafka.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
    kafka.produce(
        "_schemas", [(json.dumps(key), json.dumps(value)), (json.dumps(noop), None), ("x", "y"), (b"\xff", None)]
    )
    assert ask("GET", "/subjects/s/versions") == (200, [3])
    assert ask("POST", "/subjects/t/versions", INT)[1]["id"] == 41


def test_records_that_are_no_schemas_do_not_hide_those_behind_them(kafka, ask):
    def record(subject, **other):
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        return json.dumps(key), json.dumps({"subject": subject, "version": 1, "id": 1, "schema": '"string"'} | other)

    def setting(keytype, value, **fields):
        return json.dumps({"keytype": keytype} | fields), json.dumps(value)

    kafka.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
    kafka.produce(
        "_schemas",
        [
            record("first"),
            record("number", version="one"),
            record("text", schema=None),
            record("references", references=[{"name": "x"}]),
            setting("SCHEMA", {}, subject="s", version=1),
            setting("DELETE_SUBJECT", {}, subject="first"),
            setting("CONFIG", []),
            setting("MODE", "READONLY"),
            record("last"),
        ],
    )
    for _ in range(2):
        assert ask("GET", "/subjects") == (200, ["first", "last"])
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("POST", "/subjects/new/versions", STRING)[0] == 200


def test_a_port_that_cannot_be_used_is_refused_with_a_remedy(kafka):
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(OSError, match=rf"the schema registry on 127.0.0.1:{port}: Address already in use; .*port 0"):
        start_registry(kafka._call, kafka.produce, port=port)
    with pytest.raises(ConfigError, match="there is no port 70000; give one from 0 to 65535"):
        start_registry(kafka._call, kafka.produce, port=70_000)


def test_brokers_of_one_process_have_a_registry_each(ask):
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert ask("POST", "/subjects/s/versions", STRING, url=one.schema_registry_url)[0] == 200
        assert ask("GET", "/subjects", url=one.schema_registry_url) == (200, ["s"])
        assert ask("GET", "/subjects", url=other.schema_registry_url) == (200, [])


def test_a_snapshot_contains_the_schemas(kafka, ask):
    empty = kafka.snapshot()
    ask("POST", "/subjects/s/versions", STRING)
    one = kafka.snapshot()
    ask("POST", "/subjects/t/versions", INT)
    assert ask("GET", "/subjects") == (200, ["s", "t"])
    kafka.restore(one)
    assert ask("GET", "/subjects") == (200, ["s"])
    assert ask("POST", "/subjects/u/versions", INT)[1]["id"] == 2
    kafka.restore(empty)
    assert ask("GET", "/subjects") == (200, [])
    assert ask("POST", "/subjects/s/versions", INT)[1]["id"] == 1
    with EmbeddedBroker(copy_of=one) as copy:
        assert subjects(ask, copy) == ["s"]


def test_a_data_folder_contains_the_schemas(ask, tmp_path):
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        assert register(ask, kafka, "s", STRING)[1]["id"] == 1
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        assert subjects(ask, kafka) == ["s"]
        assert register(ask, kafka, "t", INT)[1]["id"] == 2


def test_a_crash_loses_nothing_that_was_answered(kafka, ask, caplog):
    ask("POST", "/subjects/s/versions", STRING)
    kafka.crash()
    status, found = ask("GET", "/subjects")
    assert (status, found["error_code"]) == (500, 50001)
    assert "restart()" in found["message"]
    # It is no bug of the registry: nothing is logged.
    assert not caplog.records
    kafka.restart()
    assert ask("GET", "/subjects") == (200, ["s"])


def test_a_deleted_topic_is_an_empty_registry(kafka, ask):
    ask("POST", "/subjects/s/versions", STRING)
    kafka.delete_topic("_schemas")
    assert ask("GET", "/subjects") == (200, [])
    assert ask("POST", "/subjects/t/versions", STRING)[1]["id"] == 1
    assert ask("GET", "/subjects") == (200, ["t"])


def test_it_works_beside_virtual_time(ask):
    with EmbeddedBroker(clock="virtual") as kafka:
        assert register(ask, kafka, "s", STRING)[0] == 200
        kafka.clock.advance(3600 * 24 * 30)
        assert subjects(ask, kafka) == ["s"]


def test_a_missing_library_is_named_with_the_remedy():
    libraries = ("avro", "uvicorn", "proto_schema_parser")
    program = "from broker_core import EmbeddedBroker\nwith EmbeddedBroker() as kafka: kafka.schema_registry_url"
    for library, said in said_without(program, *libraries).items():
        assert re.search(rf"MissingExtraError: .* needs {library}.*pip install '\.\[registry\]'", said), said


def test_the_command_serves_a_registry_and_keeps_its_subjects(ask, tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra control")
    arguments = ("--port", "0", "--data-dir", str(tmp_path), "--schema-registry-port", "0")
    pattern = re.compile(r"schema registry at (http://\S+?)[ ,(]").pattern
    with running(*arguments, pattern=pattern) as (process, url):
        assert ask("POST", "/subjects/s/versions", STRING, url=url)[1]["id"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    with running(*arguments, "--control-port", "0", pattern=pattern) as (process, url):
        assert ask("GET", "/subjects", url=url) == (200, ["s"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
