#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small source in Python that a table uses.
#
# Seen: OPTIONS of CREATE TABLE ... USING a Python source reach the source's schema() during CREATE TABLE, and nothing after it:
#       SELECT and INSERT get a source without options. Options of a statement, SELECT ... FROM t WITH (...) and
#       INSERT INTO t WITH (...), arrive. SHOW CREATE TABLE prints neither USING nor OPTIONS: its statement makes another table.
#
# Surprising, because tables of other formats are read with their options, and because nothing says that they are dropped.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >table.py <<'PYTHON'
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, WriterCommitMessage
from seen import see
from spark_session import note, session, take_notes


class Reader(DataSourceReader):
    def read(self, partition):
        yield (1,)


class Writer(DataSourceWriter):
    def write(self, rows):
        for _ in rows:
            pass
        return WriterCommitMessage()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        note(f"schema {self.options.get('place')}")
        return "n int"

    def reader(self, schema):
        note(f"reader {self.options.get('place')}")
        return Reader()

    def writer(self, schema, overwrite):
        note(f"writer {self.options.get('place')}")
        return Writer()


spark = session()
spark.dataSource.register(Source)


def calls(statement):
    take_notes()
    spark.sql(statement).collect()
    return sorted(set(take_notes()))


see("CREATE TABLE", calls("CREATE TABLE t USING source OPTIONS (place 'here')")[-1:], ["schema here"])
see("SELECT", calls("SELECT * FROM t")[:1], ["reader None"])
see("INSERT", calls("INSERT INTO t VALUES (1)")[-1:], ["writer None"])
see("SELECT WITH", calls("SELECT * FROM t WITH (place = 'there')")[:1], ["reader there"])
see("INSERT WITH", calls("INSERT INTO t WITH (place = 'there') VALUES (1)")[-1:], ["writer there"])
shown = spark.sql("SHOW CREATE TABLE t").collect()[0][0]
see("SHOW CREATE TABLE", " ".join(shown.split()), "CREATE TABLE spark_catalog.default.t ( n INT)")
PYTHON
quietly python table.py
