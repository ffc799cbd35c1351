"""The check of a DataFrame's columns, before any data is sent.

The names, types and texts are the same as in Spark's own `kafka` sink, so that a job moves over unchanged;
`timestamp` is an addition. Columns with other names are ignored, as there. Two columns of one name, or two such fields
in a column, are refused here, because Spark sends none to Python, which it reports in the middle of the job only.

A `timestamp` must have the type that denotes a point in time. Other types that Spark can cast to it are refused,
because only the job's author can decide how: a `timestamp_ntz` or a text needs a time zone, which tasks do not know,
and a number is seconds to Spark's cast but milliseconds in Kafka.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from spark_eos.errors import OptionError
from spark_eos.runtime import ProcessState

logger = logging.getLogger(__name__)
KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
PARTITION: Final = "partition"
TIMESTAMP: Final = "timestamp"
NAMES: Final = (TOPIC, KEY, VALUE, HEADERS, PARTITION, TIMESTAMP)
_HEADERS_TEXT: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = (
    (TOPIC, StringType, "a string"),
    (KEY, (StringType, BinaryType), "a string or binary"),
    (VALUE, (StringType, BinaryType), "a string or binary"),
    (PARTITION, IntegerType, "an int"),
)


def check_columns(schema: StructType, topic_option: str | None) -> None:
    """Raise if a DataFrame cannot be written, with the texts of Spark's own sink."""
    found = list(_types_inside(schema))
    counts = [(place, Counter(kind.names)) for place, kind in found if isinstance(kind, StructType)]
    if repeated := sorted({".".join((*place, name)) for place, names in counts for name in names if names[name] > 1}):
        raise OptionError(
            f"The DataFrame has more than one column named {', '.join(map(repr, repeated))}",
            checked="Its schema. Spark cannot send such rows to Python, whether the columns are written or not",
            remedy="Select the columns to write, or rename or drop the others; after a join, select from one side",
        )
    types = {field.name: field.dataType for field in schema.fields}
    if unread := sorted({".".join(place) for place, kind in found if isinstance(kind, YearMonthIntervalType)}):
        raise OptionError(
            f"The DataFrame has columns of type interval year to month: {', '.join(map(repr, unread))}",
            checked="Its schema. Python's Arrow cannot read them, whether they are written or not",
            remedy="Drop them, or cast them to string",
        )
    if topic_option is None and TOPIC not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present",
            remedy="Use the topic option for setting a topic, or add a column 'topic'",
        )
    if VALUE not in types:
        raise OptionError(
            "Required attribute 'value' not found",
            checked=f"The columns are {', '.join(types) or 'none'}",
            remedy="Select the payload AS value",
        )
    if topic_option is not None:
        # Not read.
        types.pop(TOPIC, None)
    for name, allowed, text in _TYPES:
        if name in types and not isinstance(types[name], allowed):
            raise _unsupported(name, types[name], text)
    if TIMESTAMP in types and not isinstance(types[TIMESTAMP], TimestampType):
        raise _unsupported(TIMESTAMP, types[TIMESTAMP], "a timestamp", _timestamp_remedy(types[TIMESTAMP]))
    if HEADERS in types and not _are_headers(types[HEADERS]):
        raise _unsupported(HEADERS, types[HEADERS], f"an {_HEADERS_TEXT}")


def report_ignored(schema: StructType, process: ProcessState) -> None:
    """Log once in a process that a column is ignored whose name differs from one of the sink's only in case."""
    given = schema.names
    for name in given:
        if name.lower() in NAMES and name.lower() not in given and process.is_first(("ignored column", name)):
            logger.warning(
                "the column '%s' is ignored, as by Spark's own sink: the sink reads '%s', in lower case; rename the "
                "column, or drop it",
                name,
                name.lower(),
            )


def column_of(rows: Any, name: str) -> Any:
    return rows.column(name) if name in rows.schema.names else None


def check_append(overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "Save mode Overwrite not allowed for Kafka",
            checked="A topic cannot be replaced. Spark names Overwrite for every format in Python that has no mode",
            remedy='Add .mode("append") before save(), or use spark_eos.write, which needs no mode',
        )


def _types_inside(found: DataType, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    yield place, found
    if isinstance(found, ArrayType):
        yield from _types_inside(found.elementType, place)
    elif isinstance(found, MapType):
        yield from _types_inside(found.keyType, place)
        yield from _types_inside(found.valueType, place)
    elif isinstance(found, StructType):
        for field in found.fields:
            yield from _types_inside(field.dataType, (*place, field.name))


def _timestamp_remedy(found: DataType) -> str:
    drop = "or drop the column; records then get the time of writing, as with Spark's own sink"
    if isinstance(found, IntegralType):
        return f"Use timestamp_millis(timestamp), or timestamp_seconds(timestamp) if the column is in seconds, {drop}"
    zone = "which reads it in the session's time zone (spark.sql.session.timeZone)"
    return f"Use CAST(timestamp AS timestamp), {zone}, {drop}"


def _unsupported(name: str, found: DataType, text: str, remedy: str | None = None) -> OptionError:
    return OptionError(
        f"{name} attribute unsupported type {found.simpleString()}. {name} must be {text}",
        remedy=remedy or f"Cast the column '{name}'",
    )


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(field.name.lower(), type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
