#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session and a batch source in Python that yields rows (not record batches) whose
# values do not quite fit the schema.
#
# Seen: 1. A Row with named fields in another order: matched by name at the top, by position inside a struct column.
#       2. 1.5 for INT becomes 1, and a Decimal with more digits than its column is rounded. No error.
#       3. Values that lose nothing are refused: True and '7' for INT, and 1 for DECIMAL.
#
# Surprising, because the same Row is read in two ways in one row, and because the converter refuses harmless values and takes values
# that lose something. A source that yields record batches has its types checked, before any row.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >values.py <<'PYTHON'
import decimal

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader
from seen import see
from spark_session import session

VALUES = {
    "row": ("a INT, b INT", Row(b=2, a=1)),
    "struct": ("value STRUCT<a: INT, b: INT>", (Row(b=2, a=1),)),
    "fraction": ("value INT", (1.5,)),
    "digits": ("value DECIMAL(10, 2)", (decimal.Decimal("1.239"),)),
    "flag": ("value INT", (True,)),
    "text": ("value INT", ("7",)),
    "whole": ("value DECIMAL(10, 2)", (1,)),
}


class Reader(DataSourceReader):
    def __init__(self, name):
        self.name = name

    def read(self, partition):
        yield VALUES[self.name][1]


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return VALUES[self.options["value"]][0]

    def reader(self, schema):
        return Reader(self.options["value"])


def read(name):
    try:
        return [row.asDict(recursive=True) for row in spark.read.format("source").option("value", name).load().collect()]
    except Exception:
        return "refused"


spark = session()
spark.dataSource.register(Source)
see("1. Row(b=2, a=1) as a row", read("row"), [{"a": 1, "b": 2}])
see("   Row(b=2, a=1) in a struct column", read("struct"), [{"value": {"a": 2, "b": 1}}])
see("2. 1.5 for INT", read("fraction"), [{"value": 1}])
see("   Decimal('1.239') for DECIMAL(10, 2)", read("digits"), [{"value": decimal.Decimal("1.24")}])
see("3. True for INT", read("flag"), "refused")
see("   '7' for INT", read("text"), "refused")
see("   1 for DECIMAL(10, 2)", read("whole"), "refused")
PYTHON
quietly python values.py
