#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small writer in Python, in batches and in a stream.
#
# Seen: 1. A write() that returns before its input ends drops the rest of the rows; the job succeeds.
#       2. If commit() and abort() both raise, a batch write raises a Py4JJavaError of more than 100 lines, no PySparkException;
#          its first line about the job is "Writing job failed."
#       3. streamWriter() is called twice for each micro-batch: once for the tasks, once for commit(). What commit() keeps in
#          self is gone at the next commit() and was never in write().
#
# Surprising, because a task that leaves input behind could fail, because an error of commit() alone is a PySparkException, and
# because a stream's writer looks like an object that lives as long as its query.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >writer.py <<'PYTHON'
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from seen import see, wait_for
from spark_session import note, notes, session, take_notes


class Writer(DataSourceWriter):
    def __init__(self, case):
        self.case = case

    def write(self, rows):
        taken = 0
        for _ in rows:
            taken += 1
            if self.case == "early" and taken == 3:
                break
        note(f"took {taken}")
        return WriterCommitMessage()

    def commit(self, messages):
        if self.case in ("commit", "both"):
            raise ValueError("the commit failed")

    def abort(self, messages):
        if self.case == "both":
            raise ValueError("the abort failed")


class StreamWriter(DataSourceStreamWriter):
    def __init__(self):
        self.commits = 0
        note("a writer")

    def write(self, rows):
        for _ in rows:
            pass
        note(f"write after {self.commits} commits")
        return WriterCommitMessage()

    def commit(self, messages, batch_id):
        note(f"commit {batch_id} after {self.commits} commits")
        self.commits += 1


class Sink(DataSource):
    @classmethod
    def name(cls):
        return "sink"

    def writer(self, schema, overwrite):
        return Writer(self.options["case"])

    def streamWriter(self, schema, overwrite):
        return StreamWriter()


spark = session()
spark.dataSource.register(Sink)


def failure(case):
    take_notes()
    try:
        spark.range(1000).coalesce(1).write.format("sink").option("case", case).mode("append").save()
    except Exception as error:
        return error


see("1. error of a write that returns early", failure("early"), None)
see("   rows taken of 1000", take_notes(), ["took 3"])
error = failure("commit")
print(f"2. error of commit: {type(error).__name__}, {len(str(error).splitlines())} lines")
see("   it is a PySparkException", isinstance(error, PySparkException), True)
error = failure("both")
lines = str(error).splitlines()
cause = next(number for number, line in enumerate(lines, 1) if "the commit failed" in line)
print(f"   error of commit and abort: {type(error).__name__}, {len(lines)} lines, the cause of commit in line {cause}")
see("   it is a PySparkException", isinstance(error, PySparkException), False)
see("   it is a Py4JJavaError", isinstance(error, Py4JJavaError), True)
see("   it has more than 100 lines", len(lines) > 100, True)
see("   its second line", lines[1].rpartition(": ")[2], "Writing job failed.")
take_notes()
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().coalesce(1)
    .writeStream.format("sink").option("checkpointLocation", "checkpoint").start()
)
micro_batch = ["a writer", "write after 0 commits", "a writer", "commit {} after 0 commits"]
stated = [line.format(batch) for batch in range(3) for line in micro_batch]
wait_for(lambda: len(notes()) >= len(stated) or query.exception())
query.stop()
see("3. three micro-batches", take_notes()[: len(stated)], stated)
PYTHON
quietly python writer.py
