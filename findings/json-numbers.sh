#!/bin/bash
# Run: a field is taken out of JSON documents by each function that PySpark 4.3.0, polars 2.1.0 and ClickHouse 26.9 (chdb 4.4.0) have for
# it. Needs a JDK.
#
# Seen: 1. The number 1234567890123456.78. As text Spark's get_json_object, json_tuple and from_json with STRING or MAP<STRING, STRING>
#          have 1.2345678901234568E15, which as DECIMAL(20, 2) is ...456.80. They have 100.0 for 100.00. from_json with DECIMAL and
#          parse_json have the number. polars and ClickHouse give ...456.80 also where they are to give a decimal.
#       2. 100.0 and 1e2 for BIGINT: Spark's from_json gives null; try_variant_get of try_parse_json gives 100.
#       3. A key twice, 1 and then 2: get_json_object gives the first value, from_json and json_tuple the second, try_parse_json null.
#
# Surprising, because a text should be what is in the document, and "take it as text and cast it later" is the usual advice for numbers
# that must not lose digits; and because a decimal was asked for. No function raises an error, and a null looks like a missing field.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1 polars==2.1.0 chdb==4.4.0
cat >take.py <<'PYTHON'
import subprocess
import sys

import polars
from seen import see
from spark_session import session

FUNCTIONS = {
    "get_json_object": "SELECT get_json_object(j, '$.a') AS a FROM documents",
    "json_tuple": "SELECT json_tuple(j, 'a') AS a FROM documents",
    "from_json, STRING": "SELECT from_json(j, 'a STRING').a AS a FROM documents",
    "from_json, MAP": "SELECT from_json(j, 'MAP<STRING, STRING>')['a'] AS a FROM documents",
    "from_json, DECIMAL": "SELECT from_json(j, 'a DECIMAL(20, 2)').a AS a FROM documents",
    "from_json, BIGINT": "SELECT from_json(j, 'a BIGINT').a AS a FROM documents",
    "parse_json, DECIMAL": "SELECT try_variant_get(try_parse_json(j), '$.a', 'DECIMAL(20, 2)') AS a FROM documents",
    "parse_json, BIGINT": "SELECT try_variant_get(try_parse_json(j), '$.a', 'BIGINT') AS a FROM documents",
}
AMOUNT, ROUND, POWER, TWICE = (f'{{"a": {each}}}' for each in ("1234567890123456.78", "100.00", "1e2", '1, "a": 2'))


def taken(function, document, cast="STRING"):
    spark.createDataFrame([(document,)], "j STRING").createOrReplaceTempView("documents")
    return spark.sql(f"SELECT CAST(CAST(a AS {cast}) AS STRING) FROM ({FUNCTIONS[function]})").collect()[0][0]


spark = session("local[1]")
for function in list(FUNCTIONS)[:4]:
    seen = (taken(function, AMOUNT), taken(function, AMOUNT, "DECIMAL(20, 2)"), taken(function, ROUND))
    see(f"1. 1234567890123456.78, as DECIMAL, and 100.00, {function}", seen, ("1.2345678901234568E15", "1234567890123456.80", "100.0"))
for function in ("from_json, DECIMAL", "parse_json, DECIMAL"):
    see(f"   {function}", (taken(function, AMOUNT), taken(function, ROUND)), ("1234567890123456.78", "100.00"))
amounts = polars.DataFrame({"j": [AMOUNT]})
seen = (
    amounts.select(polars.col("j").str.json_decode(polars.Struct({"a": polars.Decimal(20, 2)}))).item()["a"],
    amounts.select(polars.col("j").str.json_path_match("$.a")).item(),
)
see("   polars, DECIMAL and text", tuple(map(str, seen)), ("1234567890123456.80", "1234567890123456.8"))
command = [sys.executable, "-c", "import chdb, sys; print(chdb.query(sys.argv[1]))"]
query = f"SELECT JSONExtract('{AMOUNT}', 'a', 'Decimal(20, 2)'), JSONExtractRaw('{AMOUNT}', 'a')"
seen = subprocess.check_output([*command, query], text=True).strip()
see("   ClickHouse, DECIMAL and text", seen, '1234567890123456.8,"1234567890123456.8"')
for function, stated in (("from_json, BIGINT", (None, None)), ("parse_json, BIGINT", ("100", "100"))):
    see(f"2. 100.00 and 1e2, {function}", (taken(function, ROUND), taken(function, POWER)), stated)
for function, stated in (("get_json_object", "1"), ("json_tuple", "2"), ("from_json, BIGINT", "2"), ("parse_json, BIGINT", None)):
    see(f"3. 1 and then 2, {function}", taken(function, TWICE), stated)
PYTHON
quietly python take.py
