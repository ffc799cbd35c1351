#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small sink and source in Python. A `write`, and a `read`, take 60
# seconds, say each tenth of a second that they live, and have a `finally` and a handler of atexit, as one who holds a connection
# or a temporary file would. They are ended early, in four ways.
#
# Seen: 1. Another task of the write fails, the job is cancelled, or the query is stopped: `abort` is called, and the process of the
#          `write` is killed. Neither its `finally` nor its atexit handler runs. So it is for a `read` that is cancelled.
#       2. After a cancel or a stop the `write` goes on until it is killed, two seconds later (spark.python.task.killTimeout; ten in
#          this script, so that it is seen on a slow machine): beside `abort`, and after the application has gone on.
#
# Surprising, because `finally` does run when a reader has all it wants, as with limit(1), and because an `abort` that removes what
# the tasks have written, which is what it is for, is followed by more of it.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >killed.py <<'PYTHON'
import atexit
import os
import threading
import time

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter, WriterCommitMessage
from seen import see, wait_for
from spark_session import note, notes, session, take_notes


def alive(what):
    """Live for 60 seconds, and take notes of the end, if it is seen."""
    atexit.register(note, f"{what}: atexit")
    note(f"{what}: begins in {os.getpid()}")
    try:
        for _ in range(600):
            note(f"{what}: lives")
            yield time.sleep(0.1)
    finally:
        note(f"{what}: finally")


class Reader(DataSourceReader):
    def read(self, partition):
        for _ in alive("read"):
            yield (1,)


class Writer(DataSourceArrowWriter):
    def __init__(self, fails):
        self.fails = fails

    def write(self, batches):
        first = next(batches)[0][0].as_py()
        if self.fails and first == 0:
            wait_for(lambda: any("begins" in line for line in notes()))
            raise ValueError("this task fails")
        list(alive("write"))
        return WriterCommitMessage()

    def abort(self, messages):
        note("abort: called")


class StreamWriter(DataSourceStreamArrowWriter):
    def write(self, batches):
        if sum(batch.num_rows for batch in batches):
            list(alive("write"))
        return WriterCommitMessage()

    def abort(self, messages, batch):
        note("abort: called")


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Writer("fails" in self.options)

    def streamWriter(self, schema, overwrite):
        return StreamWriter()


def write(fails=False):
    rows = spark.range(0, 2 if fails else 1, 1, 2 if fails else 1).selectExpr("id AS n")
    writer = rows.write.format("source").mode("append")
    (writer.option("fails", "yes") if fails else writer).save()


def process():
    """Return the process that lives, once it does."""
    found = wait_for(lambda: [line.split()[-1] for line in notes() if "begins" in line], 300)
    return int(found[0])


def is_there(pid):
    return os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().split()[2] != "Z"


def ends(what, action, end):
    """Run the action, end it from a thread once it is there, and return what was noted."""

    def run():
        pids.append(process())
        time.sleep(1)
        end()

    pids = []
    thread = threading.Thread(target=run)
    thread.start()
    try:
        action()
    except Exception as error:
        print(type(error).__name__)
    at_end = len(notes())
    thread.join()
    see(f"   {what}: its process ends", bool(wait_for(lambda: not is_there(pids[0]), 60)), True)
    lines = take_notes()
    aborts = lines.index("abort: called") if "abort: called" in lines else None
    goes_on = aborts is not None and f"{what}: lives" in lines[aborts:] and f"{what}: lives" in lines[at_end:]
    return sorted({line for line in lines if "lives" not in line and "begins" not in line}), goes_on


def stream():
    query = spark.readStream.format("rate").load().writeStream.format("source").option("checkpointLocation", "checkpoint").start()
    queries.append(query)
    query.awaitTermination()


queries = []
spark = session("local[3]", {"spark.python.task.killTimeout": "10s"})
spark.dataSource.register(Source)
seen, _ = ends("write", lambda: write(fails=True), lambda: None)
see("1. another task of the write fails", seen, ["abort: called"])
seen, goes_on = ends("write", write, spark.sparkContext.cancelAllJobs)
see("   the job is cancelled", seen, ["abort: called"])
see("2. it goes on after abort, and after save()", goes_on, True)
seen, goes_on = ends("write", stream, lambda: queries[0].stop())
see("1. the query is stopped", seen, ["abort: called"])
see("2. it goes on after abort, and after the query's end", goes_on, True)
seen, _ = ends("read", lambda: spark.read.format("source").load().collect(), spark.sparkContext.cancelAllJobs)
see("1. a read is cancelled", seen, [])
PYTHON
quietly python killed.py
