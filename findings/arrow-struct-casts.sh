#!/bin/bash
# Run: pyarrow 26.0.1.
#
# Seen: a cast matches the fields of structs by name, and a name is its exact letters. A field that the source has not becomes
#       null, in silence, even if source and target have no field in common. A record's headers with the fields KEY and Value,
#       cast to key and value, lose all they hold.
#       1. Arrays, tables, record batches and data sets that are read with a schema do the same.
#       2. The same names one level up are an error: Table.cast refuses columns with other names, or in another order.
#       3. Only a target field that is not nullable makes the cast fail.
#       4. concat_tables with promote_options="default", which the documentation limits to columns that are missing, joins both
#          spellings into one struct of four fields, each half null.
#
# Surprising, because a cast is checked ("safe") by default, and a value that does not fit is an error there.
. "$(dirname "$0")/lib/common.sh"
python_with pyarrow==26.0.1
cat >casts.py <<'PYTHON'
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from seen import see


def headers(*names, nullable=True):
    return pa.list_(pa.struct([pa.field(name, pa.string(), nullable=nullable) for name in names]))


def failure(cast):
    try:
        cast()
    except (pa.ArrowException, ValueError) as error:
        return f"{type(error).__name__}: {error}"


written = pa.array([[{"KEY": "trace", "Value": "17"}]], headers("KEY", "Value"))
wanted = headers("key", "value")
nothing = [[{"key": None, "value": None}]]
table = pa.table({"headers": written})
schema = pa.schema([("headers", wanted)])
see("1. an array", written.cast(wanted).to_pylist(), nothing)
see("   a table", table.cast(schema)["headers"].to_pylist(), nothing)
see("   a record batch", table.to_batches()[0].cast(schema)["headers"].to_pylist(), nothing)
pyarrow.parquet.write_table(table, "records.parquet")
read = pyarrow.dataset.dataset("records.parquet", schema=schema).to_table()
see("   a data set", read["headers"].to_pylist(), nothing)
see("   read_table", pyarrow.parquet.read_table("records.parquet", schema=schema)["headers"].to_pylist(), nothing)
error = failure(lambda: table.cast(pa.schema([("Headers", written.type)])))
see("2. a column in other letters", error.split(":")[:2], ["ValueError", " Target schema's field names are not matching the table's field names"])
error = failure(lambda: pa.table({"a": [1], "b": [2]}).cast(pa.schema([("b", pa.int64()), ("a", pa.int64())])))
see("   columns in another order", error.partition(":")[0], "ValueError")
error = failure(lambda: written.cast(headers("key", "value", nullable=False)))
see("3. fields that are not nullable", error.partition(":")[0], "ArrowTypeError")
both = pa.concat_tables([table, pa.table({"headers": pa.array([[{"key": "a", "value": "b"}]], wanted)})], promote_options="default")
see("4. both spellings", both["headers"].to_pylist()[0], [{"KEY": "trace", "Value": "17", "key": None, "value": None}])
PYTHON
quietly python casts.py
