#!/bin/bash
# Run: PySpark 4.3.0 writes Parquet files with its defaults, and polars 2.1.0, pyarrow 26.0.1, DataFusion 55.0.0, fastparquet 2026.9.0
# and DuckDB 2.0.1 read them.
#       1. TIMESTAMP columns: of the year 9999, as "until further notice", and of the year 1, as "unknown".
#       2. A column of numbers beside a VARIANT, and beside a GEOMETRY.
#
# Seen: 1. DuckDB reads what was written. The others read other times, without an error: pyarrow, DataFusion and fastparquet the
#          years 1816 and 1754, polars in both cases the last one it can hold, in 2262. So "unknown" is later than all.
#          TIMESTAMP_NTZ columns are read right by all, and TIMESTAMP if Spark's spark.sql.parquet.outputTimestampType is
#          TIMESTAMP_MICROS, or if pyarrow is told to coerce to microseconds.
#       2. polars opens neither file, not even for the numbers alone: "LogicalType union has no variant set". The others read
#          them. In the VARIANT, pyarrow and DataFusion have a `value` that is null: its fields are in columns of their own.
#
# Surprising, because the format has had 64-bit timestamps for ten years: by default Spark still writes TIMESTAMP, but not
# TIMESTAMP_NTZ, as 96 bits with nanoseconds, which four readers keep in 64 bits: these reach from 1677 to 2262. And a column
# that nobody asked for should not decide whether a file can be read.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 polars==2.1.0 pyarrow==26.0.1 datafusion==55.0.0 fastparquet==2026.9.0 pandas==3.1.1 duckdb==2.0.1
cat >write.py <<'PYTHON'
from spark_session import session

spark = session("local[1]", {"spark.sql.session.timeZone": "UTC"})
times = "TIMESTAMP'9999-12-31' AS late, TIMESTAMP'0001-01-01' AS early, TIMESTAMP_NTZ'9999-12-31' AS ntz"
spark.sql(f"SELECT {times}").write.parquet("times")
spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
spark.sql(f"SELECT {times}").write.parquet("micros")
spark.sql("""SELECT 7 AS id, parse_json('{"a": 1}') AS other""").write.parquet("variant")
spark.sql("SELECT 7 AS id, ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040') AS other").write.parquet("geometry")
PYTHON
cat >read.py <<'PYTHON'
import glob

import datafusion
import duckdb
import fastparquet
import polars
import pyarrow.parquet
from seen import see

YEARS = ("late", "early", "ntz")


def years(row):
    # What pyarrow and fastparquet return has no year if it is in nanoseconds as a number.
    return tuple(value.year for value in row)


def by_polars(path, names):
    return polars.read_parquet(path, columns=list(names)).row(0)


def by_pyarrow(path, names, **settings):
    return tuple(pyarrow.parquet.read_table(path, columns=list(names), **settings).to_pylist()[0].values())


def by_datafusion(path, names):
    return tuple(datafusion.SessionContext().read_parquet(path).select(*names).to_pylist()[0].values())


def by_fastparquet(path, names):
    table = fastparquet.ParquetFile(path).to_pandas(columns=list(names))
    return tuple(table[name].iloc[0] for name in names)


def by_duckdb(path, names):
    return duckdb.sql(f"SELECT {', '.join(names)} FROM '{path}'").fetchall()[0]


times, micros, variant, geometry = (glob.glob(f"{name}/*.parquet")[0] for name in ("times", "micros", "variant", "geometry"))
for read, stated in {
    by_duckdb: (9999, 1, 9999),
    by_pyarrow: (1816, 1754, 9999),
    by_datafusion: (1816, 1754, 9999),
    by_fastparquet: (1816, 1754, 9999),
    by_polars: (2262, 2262, 9999),
}.items():
    see(f"1. the years 9999, 1 and 9999 (NTZ) {read.__name__}", years(read(times, YEARS)), stated)
for read in (by_duckdb, by_pyarrow, by_datafusion, by_fastparquet, by_polars):
    see(f"   written as TIMESTAMP_MICROS {read.__name__}", years(read(micros, YEARS)), (9999, 1, 9999))
told = by_pyarrow(times, YEARS, coerce_int96_timestamp_unit="us")
see("   by_pyarrow, told to use microseconds", years(told), (9999, 1, 9999))
for path, what in ((variant, "VARIANT"), (geometry, "GEOMETRY")):
    for read in (by_duckdb, by_pyarrow, by_datafusion, by_fastparquet):
        see(f"2. the number beside a {what} {read.__name__}", read(path, ["id"])[0], 7)
    try:
        found = by_polars(path, ["id"])
    except polars.exceptions.ComputeError as error:
        found = str(error)
    see("   by_polars", "LogicalType union has no variant set" in found, True)
for read in (by_pyarrow, by_datafusion):
    other = read(variant, ["other"])[0]
    see(f"   the VARIANT {read.__name__}", (other["value"], other["typed_value"]["a"]), (None, {"value": None, "typed_value": 1}))
see("   the VARIANT by_duckdb", by_duckdb(variant, ["other"])[0], {"a": 1})
PYTHON
quietly python write.py
quietly python read.py
