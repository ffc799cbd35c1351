#!/bin/bash
# Run: PySpark 4.1.4 with Delta Lake 4.4.0 and with Iceberg 1.12.0 for Spark 4.1 (a catalog of type hadoop). Streaming queries read a Delta
# table, and write to an Iceberg table, with availableNow. Needs a JDK.
#
# Seen: 1. A query has read the rows a and b of a Delta table. DELETE takes b away by mistake, and RESTORE brings it back. The query stops
#          at the DELETE, and its error advises ignoreDeletes. With that option the query reads b again.
#       2. A MERGE updates one row and inserts another one. The error advises skipChangeCommits. With it the query never reads either.
#       3. INSERT INTO t.branch_audit, and writeTo, write into the branch "audit" of an Iceberg table, and so does start("t.branch_audit") of a
#          streaming query. Its toTable("t.branch_audit") makes a new table of this name. From then on SELECT and INSERT of
#          t.branch_audit mean that table, too; the branch, which VERSION AS OF shows, gets no rows any more.
#       4. With spark.wap.branch=audit an INSERT INTO t goes to the branch, to be looked at first. A streaming query writes to the table.
#
# Surprising, because a restored table is as it was, and its stream is not; because a row that is only inserted goes missing; and
# because one name, or one setting, means the branch for batches and another table for streams, without a word.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.1.4 pyarrow==26.0.1
jars_of tables io.delta:delta-spark_4.1_2.13:4.4.0 org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
cat >table_streams.py <<'PYTHON'
import glob
import os

from pyspark.errors import StreamingQueryException
from seen import see
from table_session import table_session

HERE = os.getcwd()
spark = table_session()


def text(frame):
    """Return the rows of one column as one text."""
    return "".join(sorted(value for (value,) in frame.collect()))


def frame_of(*values):
    """Return a DataFrame of these rows, in one file if it is written."""
    return spark.createDataFrame([(each,) for each in values], "value STRING").coalesce(1)


def append(name, *values):
    """Append rows to a Delta table."""
    frame_of(*values).write.format("delta").mode("append").save(f"{HERE}/{name}")


def read(name, **options):
    """Run a query that reads a Delta table, and return what it read, or the option that its error advises."""
    found = []
    rows = spark.readStream.format("delta").options(**options).load(f"{HERE}/{name}")
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.append(text(batch)))
    query = writer.option("checkpointLocation", f"{HERE}/{name}-checkpoint").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return str(error).split("set the option '")[1].split("'")[0]
    return "".join(found)


append("undone", "a")
append("undone", "b")
see("Delta, a query reads", read("undone"), "ab")
spark.sql(f"DELETE FROM delta.`{HERE}/undone` WHERE value = 'b'")
spark.sql(f"RESTORE TABLE delta.`{HERE}/undone` TO VERSION AS OF 1")
append("undone", "c")
see("   the table after DELETE of b, RESTORE and an append of c", text(spark.read.format("delta").load(f"{HERE}/undone")), "abc")
see("   the query's error advises", read("undone"), "ignoreDeletes")
see("   with this option it reads", read("undone", ignoreDeletes="true"), "bc")

append("merged", "a", "b")
see("Delta, a query reads", read("merged"), "ab")
spark.sql(
    f"MERGE INTO delta.`{HERE}/merged` AS t USING (SELECT 'b' AS old, 'B' AS new UNION ALL SELECT 'x', 'x') AS s ON t.value = s.old"
    " WHEN MATCHED THEN UPDATE SET value = s.new WHEN NOT MATCHED THEN INSERT (value) VALUES (s.new)"
)
append("merged", "y")
see("   the table after a MERGE and an append", text(spark.read.format("delta").load(f"{HERE}/merged")), "Baxy")
see("   the query's error advises", read("merged"), "skipChangeCommits")
see("   with this option it reads", read("merged", skipChangeCommits="true"), "y")


def branches():
    """Return the rows of the table, of its branch, and of what has the name of the branch."""
    version = "SELECT * FROM iceberg.tables.t VERSION AS OF 'audit'"
    return [text(frame) for frame in (spark.table("iceberg.tables.t"), spark.sql(version), spark.table("iceberg.tables.t.branch_audit"))]


def copy(start):
    """Run a query that copies the row s, started by a function of its writer."""
    checkpoint = f"{HERE}/checkpoint-{len(glob.glob(f'{HERE}/checkpoint-*'))}"
    rows = spark.readStream.format("text").load(f"{HERE}/input")
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    start(writer).awaitTermination()


frame_of("s").write.text("input")
spark.sql("CREATE TABLE iceberg.tables.t (value STRING) USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true')")
spark.sql("INSERT INTO iceberg.tables.t VALUES ('m')")
spark.sql("ALTER TABLE iceberg.tables.t CREATE BRANCH audit")
frame_of("w").writeTo("iceberg.tables.t.branch_audit").append()
see("Iceberg, writeTo a branch: rows of the table, the branch, t.branch_audit", branches(), ["m", "mw", "mw"])
copy(lambda writer: writer.start("iceberg.tables.t.branch_audit"))
see("   after start() of a streaming query", branches(), ["m", "msw", "msw"])
spark.conf.set("spark.wap.branch", "audit")
spark.sql("INSERT INTO iceberg.tables.t VALUES ('i')")
copy(lambda writer: writer.toTable("iceberg.tables.t"))
spark.conf.unset("spark.wap.branch")
see("   with spark.wap.branch, after INSERT of i and a streaming query", branches(), ["ms", "imsw", "imsw"])
copy(lambda writer: writer.toTable("iceberg.tables.t.branch_audit"))
see("   after toTable of a streaming query", branches(), ["ms", "imsw", "s"])
spark.sql("INSERT INTO iceberg.tables.t.branch_audit VALUES ('j')")
see("   and after INSERT INTO t.branch_audit", branches(), ["ms", "imsw", "js"])
PYTHON
quietly python table_streams.py
