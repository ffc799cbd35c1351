"""The sink's columns, compared with Spark's own sink: accepted types, rejected types, and messages."""

import pytest
from pyspark.sql import types
from pyspark.sql.types import StructType

from spark_eos.errors import OptionError
from spark_eos.runtime import REAL, ProcessState
from spark_eos.sink.columns import check_append, check_columns, report_ignored

HEADERS = "array<struct<key:string,value:binary>>"


def _schema(text: str) -> StructType:
    schema = _parse_ddl(text)
    assert isinstance(schema, StructType)
    return schema


def _parse_ddl(text: str) -> object:
    # Spark's own parser needs a session; these few types do not.
    from pyspark.sql import types

    simple = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestamp_ntz": types.TimestampNTZType(),
        "date": types.DateType(),
        HEADERS: types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
            )
        ),
        "array<string>": types.ArrayType(types.StringType()),
    }
    fields = [column.split(" ", 1) for column in text.split("; ")]
    return types.StructType([types.StructField(name, simple[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("value string; topic string", None),
        ("value binary; topic string; key string", None),
        ("key binary; value string; topic string", None),
        (f"value string; topic string; headers {HEADERS}; partition int; timestamp timestamp; other bigint", None),
        # The option takes precedence.
        ("value string; topic int", "t"),
    ],
)
def test_column_types_accepted_by_spark_are_accepted(text: str, topic: str | None) -> None:
    check_columns(_schema(text), topic)


@pytest.mark.parametrize(
    ("text", "topic", "words"),
    [
        ("value string", None, "topic option required when no 'topic' attribute is present"),
        ("key string; topic string", None, "Required attribute 'value' not found"),
        ("VALUE string", "t", "Required attribute 'value' not found"),
        ("value bigint", "t", "value attribute unsupported type bigint. value must be a string or binary"),
        ("value string; key int", "t", "key attribute unsupported type int. key must be a string or binary"),
        ("value string; topic int", None, "topic attribute unsupported type int. topic must be a string"),
        (
            "value string; partition bigint",
            "t",
            "partition attribute unsupported type bigint. partition must be an int",
        ),
        (
            "value string; headers array<string>",
            "t",
            "headers attribute unsupported type array<string>. headers must be an array<",
        ),
        ("value string; timestamp timestamp_ntz", "t", "timestamp attribute unsupported type timestamp_ntz"),
    ],
)
def test_column_types_refused_by_spark_are_refused_with_its_error_text(
    text: str, topic: str | None, words: str
) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(_schema(text), topic)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("timestamp_ntz", r"Use CAST\(timestamp AS timestamp\), which reads it in the session's time zone"),
        ("string", r"Use CAST\(timestamp AS timestamp\)"),
        ("date", r"Use CAST\(timestamp AS timestamp\)"),
        ("bigint", r"Use timestamp_millis\(timestamp\), or timestamp_seconds\(timestamp\) if the column is in seconds"),
        ("int", r"Use timestamp_millis\(timestamp\)"),
    ],
)
def test_timestamp_without_time_zone_is_refused_with_the_cast_to_use(kind: str, remedy: str) -> None:
    with pytest.raises(OptionError, match=f"unsupported type {kind}. timestamp must be a timestamp.*{remedy}.*drop"):
        check_columns(_schema(f"value string; timestamp {kind}"), "t")


def test_repeated_names_are_refused_before_the_job() -> None:
    with pytest.raises(OptionError, match=r"more than one column named 'other', 'value'.*select from one side"):
        check_columns(_schema("value string; key string; other int; other string; value int"), "t")


def _twice(name: str) -> StructType:
    return types.StructType([types.StructField(name, types.StringType())] * 2)


@pytest.mark.parametrize(
    "found",
    [
        _twice("a"),
        types.ArrayType(_twice("a")),
        types.MapType(_twice("a"), types.StringType()),
        types.MapType(types.StringType(), types.ArrayType(_twice("a"))),
    ],
    ids=["struct", "array", "keys", "values"],
)
def test_repeated_names_inside_of_a_column_are_refused_before_the_job(found: types.DataType) -> None:
    fields = [types.StructField("value", types.StringType()), types.StructField("other", found)]
    with pytest.raises(OptionError, match="more than one column named 'other.a'"):
        check_columns(types.StructType(fields), "t")


def test_columns_that_arrow_cannot_read_are_refused_before_the_job() -> None:
    age = types.StructField("age", types.YearMonthIntervalType(0, 1))
    inside = types.StructField("all", types.ArrayType(types.StructType([age])))
    fields = [types.StructField("value", types.StringType()), age, inside]
    with pytest.raises(OptionError, match="interval year to month: 'age', 'all.age'.*Drop them, or cast them"):
        check_columns(types.StructType(fields), "t")


def test_two_columns_may_have_fields_of_one_name() -> None:
    one = types.StructType([types.StructField("a", types.StringType())])
    both = types.MapType(one, one)
    kinds = {"value": types.StringType(), "b": one, "c": one, "b.a": types.StringType(), "both": both}
    fields = [types.StructField(name, kind) for name, kind in kinds.items()]
    check_columns(types.StructType(fields), "t")


def test_names_of_header_fields_have_any_case() -> None:
    fields = [types.StructField("KEY", types.StringType()), types.StructField("Value", types.BinaryType())]
    headers = types.StructField("headers", types.ArrayType(types.StructType(fields)))
    check_columns(types.StructType([types.StructField("value", types.StringType()), headers]), "t")


def test_ignored_column_that_differs_in_case_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    process = ProcessState(REAL)
    schema = _schema("value string; KEY string; VALUE string; Timestamp timestamp; other string")
    for _ in range(2):
        report_ignored(schema, process)
    assert [record.args for record in caplog.records] == [("KEY", "key"), ("Timestamp", "timestamp")]
    assert "'KEY' is ignored" in caplog.text and "reads 'key', in lower case" in caplog.text


def test_overwrite_mode_is_refused_with_the_line_to_add() -> None:
    check_append(False)
    with pytest.raises(OptionError, match=r"Save mode Overwrite not allowed for Kafka.*Add \.mode\(\"append\"\)"):
        check_append(True)
