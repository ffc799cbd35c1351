#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1 without the package memory-profiler, a local session. The memory profilers of Python functions
# (spark.sql.pyspark.udf.profiler=memory) and of Python data sources (spark.sql.pyspark.dataSource.profiler=memory) are turned on.
#
# Seen: 1. A Python function runs, and has no profile: PySpark warns that the package is missing.
#       2. A read and a write of a Python data source fail before their first row, with an ImportError of a module of PySpark's own.
#
# Surprising, because both settings name the same profiler, and because a profiler that cannot run should not end the job. The error
# does not name the package.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >drive.py <<'PYTHON'
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader, DataSourceWriter, WriterCommitMessage
from pyspark.sql.functions import udf
from seen import see
from spark_session import Source, note, session, take_notes


class Reader(DataSourceReader):
    def read(self, partition):
        yield (1,)


class Writer(DataSourceWriter):
    def write(self, rows):
        note(sum(1 for _ in rows))
        return WriterCommitMessage()


class OwnSource(Source):
    def reader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Writer()


def outcome(action):
    """Return what the action returns, or what is wrong with it."""
    try:
        return action()
    except PySparkException as error:
        text = str(error)
        return "ImportError" if "ImportError" in text and "memory_profiler_ext" in text else text


def read():
    return spark.read.format("source").load().count()


def write():
    spark.range(3).write.format("source").mode("append").save()
    return int(take_notes()[0])


spark = session("local[1]")
spark.dataSource.register(OwnSource)
see("no profiler: rows read, written", (outcome(read), outcome(write)), (1, 3))
spark.conf.set("spark.sql.pyspark.udf.profiler", "memory")
see("1. a function", spark.range(1).select(udf(lambda n: n + 1, "long")("id")).first()[0], 1)
spark.conf.set("spark.sql.pyspark.dataSource.profiler", "memory")
see("2. a read", outcome(read), "ImportError")
see("   a write", outcome(write), "ImportError")
see("   rows written", take_notes(), [])
spark.stop()
PYTHON
quietly python drive.py
