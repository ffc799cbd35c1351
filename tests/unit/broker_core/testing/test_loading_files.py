"""`load` of the embedded broker: topics filled from files."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest

from broker_core import EmbeddedBroker


@pytest.fixture(scope="module")
def kafka():
    with EmbeddedBroker(listeners={}, topics={"two": 2}) as broker:
        yield broker


def test_json_lines_keep_their_text(kafka, tmp_path):
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 7,  "tags": ["a"]}\n\n{"id": null, "tags": {"b": 1}}\n', encoding="utf-8-sig")
    kafka.load("lines", file, key="id")
    assert [(each.key, each.value) for each in kafka.records("lines")] == [
        (b"7", b'{"id": 7,  "tags": ["a"]}'),
        (None, b'{"id": null, "tags": {"b": 1}}'),
    ]
    kafka.load("tags", file, value="tags", transactional=True)
    assert kafka.records("tags", isolation="read_committed").values == [b'["a"]', b'{"b":1}']


def test_lines_of_any_json_are_values(kafka, tmp_path):
    (tmp_path / "any.ndjson").write_text('7\n"text"\n')
    kafka.load("any", tmp_path / "any.ndjson")
    assert kafka.records("any").values == [b"7", b'"text"']


def test_csv_columns_are_parts_of_a_record(kafka, tmp_path):
    (tmp_path / "parts.csv").write_text(
        "k,v,h,t,p\n"
        'alice,"one, two","{""trace"": ""x""}",1000,1\n'
        "bob,three,,1970-01-01T00:00:02,0\n"
        "carol,four,,1970-01-01T01:00:03+01:00,\n"
    )
    written = kafka.load(
        "two", str(tmp_path / "parts.csv"), key="k", value="v", headers="h", timestamp="t", partition="p"
    )
    assert [each.partition for each in written[:2]] == [1, 0]
    found = {each.key: each for each in kafka.records("two")}
    assert found[b"alice"].value == b"one, two"
    assert found[b"alice"].headers == (("trace", b"x"),)
    assert [found[key].timestamp_ms for key in (b"alice", b"bob", b"carol")] == [1000, 2000, 3000]


def test_csv_rows_become_json(kafka, tmp_path):
    (tmp_path / "rows.csv").write_text("id,name\n7,tée\n")
    kafka.load("rows", tmp_path / "rows.csv")
    assert kafka.records("rows").values == ['{"id":"7","name":"tée"}'.encode()]


def test_parquet_rows_and_exported_records(kafka, tmp_path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    table = pyarrow.table({"id": [7], "at": [moment], "price": [Decimal("1.50")], "raw": [b"\xff"]})
    pyarrow.parquet.write_table(table.drop_columns("raw"), tmp_path / "orders.parquet")
    kafka.load("parquet", tmp_path / "orders.parquet", key="id", timestamp="at")
    (record,) = kafka.records("parquet")
    assert record.value == b'{"id":7,"at":"2026-01-02T03:04:05.678000+00:00","price":"1.50"}'
    assert record.timestamp_ms == round(moment.timestamp() * 1000)
    pyarrow.parquet.write_table(table, tmp_path / "raw.parquet")
    with pytest.raises(ValueError, match=r"raw\.parquet, row 1: the row has bytes, which JSON cannot hold"):
        kafka.load("parquet", tmp_path / "raw.parquet")

    # What `to_arrow` exports can be loaded again.
    kafka.produce("source", [("k", b"\xff", {"h": "1"}, 5), (None, None, (), 6)])
    pyarrow.parquet.write_table(kafka.records("source").to_arrow(), tmp_path / "records.parquet")
    columns = {name: name for name in ("key", "value", "headers", "timestamp", "partition")}
    kafka.load("copy", tmp_path / "records.parquet", **columns)
    assert [each | {"topic": "source"} for each in kafka.records("copy").dicts()] == kafka.records("source").dicts()


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.jsonl", '{"id": 1}\n{"id"\n', {}, "a.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"id": 1}\n', {"key": "name"}, "a.jsonl, line 1: there is no column 'name'; there are id"),
        ("a.jsonl", '{"t": "soon"}\n', {"timestamp": "t"}, "line 1: column 't' has 'soon'; expected milliseconds"),
        ("a.jsonl", '{"p": "one"}\n', {"partition": "p"}, "line 1: column 'p' has 'one'; expected a partition"),
        ("a.jsonl", '{"h": 7}\n', {"headers": "h"}, "line 1: column 'h' has 7; expected headers"),
        ("a.csv", "a,b\n1\n", {}, "a.csv, line 2: the row has not as many cells as the first line"),
        ("a.csv", "a,b\n1,2,3\n", {}, "a.csv, line 2: the row has not as many cells"),
        ("a.csv", 'a\n"1" 2\n', {}, "a.csv, after line 1: not CSV"),
        ("a.csv", "id,id\n1,2\n", {"key": "id"}, "a.csv, line 1: two columns have the name 'id'"),
        ("a.txt", "", {}, "a.txt: unknown format '.txt'; expected one of .jsonl, .ndjson, .csv, .parquet"),
    ],
)
def test_content_that_cannot_be_used_is_named(kafka, tmp_path, name, content, columns, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=".") as raised:
        kafka.load("refused", tmp_path / name, **columns)
    assert message in str(raised.value)
    assert "refused" not in kafka.topics


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [("a.jsonl", b'{"id": 1}\n{"id": "caf\xe9"}\n', 2), ("a.csv", b"id\ncaf\xe9\n", 2), ("a.jsonl", b"\xff\xfe{\0", 1)],
)
def test_line_that_is_not_utf8_is_named(kafka, tmp_path, name, content, line):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}, line {line}: not UTF-8: save the file as UTF-8"):
        kafka.load("refused", tmp_path / name)
    assert "refused" not in kafka.topics
