"""The columns of the source: names, order and types as in Spark's own Kafka source."""

from typing import Final

import numpy as np
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

from broker_core.types import LONG_MAX, TopicPartition
from spark_eos.codec.arrow_numbers import arrow_numbers, numbers_of
from spark_eos.errors import BrokerError, OptionError

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

# Spark compares the first Arrow batch with its own conversion of the schema, which has "us" and "UTC".
ARROW_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
ARROW_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

_US_PER_MS: Final = 1_000
# The latest time of a record that fits into Spark's timestamp, which is 64 bits of microseconds.
LATEST_MS: Final = LONG_MAX // _US_PER_MS

# The columns, with Spark's type of each and Arrow's; the last one is optional.
_COLUMNS: Final = (
    ("key", BinaryType(), pa.binary()),
    ("value", BinaryType(), pa.binary()),
    ("topic", StringType(), pa.string()),
    ("partition", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("timestamp", TimestampType(), ARROW_TIMESTAMP),
    ("timestampType", IntegerType(), pa.int32()),
    ("headers", HEADERS_TYPE, ARROW_HEADERS),
)


def source_schema(include_headers: bool) -> StructType:
    return StructType([StructField(name, kind) for name, kind, _ in _COLUMNS[: None if include_headers else -1]])


def arrow_schema(include_headers: bool) -> pa.Schema:
    return pa.schema([(name, kind) for name, _, kind in _COLUMNS[: None if include_headers else -1]])


def in_microseconds(columns: pa.RecordBatch, topic_partition: TopicPartition) -> pa.Array:
    """Convert Kafka's milliseconds; producers choose them, and 64 bits of microseconds hold fewer times."""
    numbers = numbers_of(columns.column("timestamp_ms"))
    wrong = np.flatnonzero((numbers > LATEST_MS) | (numbers < -LATEST_MS))
    if not len(wrong):
        return arrow_numbers(numbers * _US_PER_MS).view(ARROW_TIMESTAMP)
    at = int(wrong[0])
    offset = columns.column("offset")[at].as_py()
    raise BrokerError(
        f"The record at offset {offset} of {topic_partition} has the time {numbers[at]}, which does not fit into "
        "Spark's timestamp",
        checked=f"Kafka's times are milliseconds, and Spark's timestamp ends at {LATEST_MS} ms. Producers that write "
        "nanoseconds cause such times",
        remedy="Correct the producer, and lower message.timestamp.after.max.ms of the topic: brokers then refuse such "
        f"records. To leave the record out, read up to offset {offset} with a batch query (endingOffsets), then from "
        f"{offset + 1} (startingOffsets); a stream needs a new checkpoint for that, and the offsets of the old "
        "checkpoint for the other partitions",
    )


def refuse_other_schema(schema: StructType, include_headers: bool) -> None:
    """Refuse a schema set by the user, as Spark's own Kafka source does."""
    if schema != source_schema(include_headers):
        raise OptionError(
            "Kafka source has a fixed schema and cannot be set with a custom one",
            checked=f"The requested schema is {schema.simpleString()}",
            remedy="Remove .schema(...) and cast key and value in a select after load()",
        )
