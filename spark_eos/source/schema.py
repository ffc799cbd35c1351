"""The columns of the source: those of Spark's own Kafka source, names, order and types."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_eos.errors import OptionError

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_RECORD_FIELDS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]

# Spark compares the first Arrow batch with its own conversion of the schema, which has "us" and "UTC".
ARROW_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
ARROW_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

_ARROW_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", ARROW_TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]


def source_schema(include_headers: bool) -> StructType:
    """Return Spark's schema of the source."""
    return StructType(_RECORD_FIELDS + ([StructField("headers", HEADERS_TYPE)] if include_headers else []))


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return Arrow's schema of the source; equal to Spark's conversion of `source_schema`."""
    return pa.schema(_ARROW_FIELDS + ([pa.field("headers", ARROW_HEADERS)] if include_headers else []))


def refuse_other_schema(schema: StructType, include_headers: bool) -> None:
    """Refuse a schema set by the user, as Spark's own Kafka source does."""
    if schema != source_schema(include_headers):
        raise OptionError(
            "Kafka source has a fixed schema and cannot be set with a custom one",
            checked=f"The requested schema is {schema.simpleString()}",
            remedy="Remove .schema(...) and cast key and value in a select after load()",
        )
