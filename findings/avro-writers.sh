#!/bin/bash
# Run: valid values are written in Avro by Avro 1.12.2 for Python and by fastavro 1.13.1, alone and in the AvroSerializer of
# confluent-kafka 2.16.1 (with its registry in memory). fastavro reads what was written.
#
# Seen: 1. Avro for Python writes the digits of a decimal and drops its exponent: with scale 2 it makes 0.20 of Decimal("20"), 1.99 of
#          Decimal("19.9") and 0.01 of Decimal("1E+3"), as bytes and as fixed. Decimal("19.90") is right. fastavro writes all four right.
#       2. fastavro writes a datetime, in a union of null, a date and a time, as the date: the hour is gone. It writes the whole number
#          9007199254740993, in a union of null, double and long, as the double ...992. So does AvroSerializer. Avro for Python
#          writes the time and the long.
#
# Surprising, because no writer raises an error and each reader reads the same wrong value: neither a registry nor a look at the topic
# shows it. The first library is Avro's own, refuses decimals with too many digits, and is right for each price with two digits.
. "$(dirname "$0")/lib/common.sh"
python_with fastavro==1.13.1 avro==1.12.2 'confluent-kafka[schemaregistry,avro]==2.16.1'
cat >drive.py <<'PYTHON'
import datetime
import io
import json
from decimal import Decimal

import avro.io
import avro.schema
import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from seen import see

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
WHEN = ["null", {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}]
NUMBER = ["null", "double", "long"]
AT = datetime.datetime(2026, 11, 30, 17, 45, tzinfo=datetime.timezone.utc)
LARGE = 2**53 + 1


def read(schema, data):
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(json.loads(json.dumps(schema))))


def by_avro(schema, value):
    data = io.BytesIO()
    avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(value, avro.io.BinaryEncoder(data))
    return read(schema, data.getvalue())


def by_fastavro(schema, value):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return read(schema, data.getvalue())


values = [Decimal(text) for text in ("20", "19.9", "19.90", "1E+3")]
for schema in (PRICE, FIXED):
    stated = [Decimal(text) for text in ("0.20", "1.99", "19.90", "0.01")]
    see(f"1. 20, 19.9, 19.90 and 1E+3 for scale 2 as {schema['type']}, Avro for Python", [by_avro(schema, each) for each in values], stated)
    see("   fastavro", [by_fastavro(schema, each) for each in values], values)

day = datetime.date(2026, 11, 30)
see(f"2. {AT}, a date or a time, fastavro", by_fastavro(WHEN, AT), day)
see("   Avro for Python", by_avro(WHEN, AT), AT)
see(f"   {LARGE}, a double or a long, fastavro", by_fastavro(NUMBER, LARGE), float(LARGE - 1))
see("   Avro for Python", by_avro(NUMBER, LARGE), LARGE)
registry = SchemaRegistryClient.new_client({"url": "mock://registry"})
fields = [{"name": "when", "type": WHEN}, {"name": "number", "type": NUMBER}]
serialize = AvroSerializer(registry, json.dumps({"type": "record", "name": "R", "fields": fields}))
context = SerializationContext("topic", MessageField.VALUE)
record = AvroDeserializer(registry)(serialize({"when": AT, "number": LARGE}, context), context)
see("   AvroSerializer", record, {"when": day, "number": float(LARGE - 1)})
PYTHON
quietly python drive.py
