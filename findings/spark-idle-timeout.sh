#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with spark.python.worker.idleTimeoutSeconds=8 and
#      spark.python.worker.killOnIdleTimeout=true, and a source and a sink in Python that wait 30 s in one method.
#
# Seen: 1. The process that runs write() is killed, as the names of the settings say: the task fails.
#       2. So is the one that runs commit(), on the driver. Its work may be done: abort() is called nevertheless, and the
#          write fails.
#       3. So is the one that runs partitions(): the read fails.
#
# Surprising, because the settings speak of workers that send no data to a task, and because a commit() that waits for another
# system is not idle. A sink has to find out in abort() whether its commit() took effect.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >idle.py <<'PYTHON'
import time

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage
from seen import see
from spark_session import note, session, take_notes


def work(method, waits_in):
    note(f"{method} begins")
    if method == waits_in:
        time.sleep(30)
    note(f"{method} ends")


class Writer(DataSourceWriter):
    def __init__(self, waits_in):
        self.waits_in = waits_in

    def write(self, rows):
        for _ in rows:
            pass
        work("write", self.waits_in)
        return WriterCommitMessage()

    def commit(self, messages):
        work("commit", self.waits_in)

    def abort(self, messages):
        note("abort")


class Reader(DataSourceReader):
    def __init__(self, waits_in):
        self.waits_in = waits_in

    def partitions(self):
        work("partitions", self.waits_in)
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class Both(DataSource):
    @classmethod
    def name(cls):
        return "both"

    def schema(self):
        return "n int"

    def reader(self, schema):
        return Reader(self.options["waits in"])

    def writer(self, schema, overwrite):
        return Writer(self.options["waits in"])


spark = session(
    "local[1]", {"spark.python.worker.idleTimeoutSeconds": "8", "spark.python.worker.killOnIdleTimeout": "true"}
)
spark.dataSource.register(Both)


def outcome(action):
    try:
        action()
    except Exception as failure:
        return "killed" if "terminated due to idle timeout (timeout: 8 seconds)" in str(failure) else str(failure)
    return "done"


def write(waits_in):
    return outcome(spark.range(1).write.format("both").mode("append").option("waits in", waits_in).save), take_notes()


def read(waits_in):
    return outcome(spark.read.format("both").option("waits in", waits_in).load().collect), take_notes()


see("nothing waits", write("nothing"), ("done", ["write begins", "write ends", "commit begins", "commit ends"]))
see("1. write() waits", write("write"), ("killed", ["write begins", "abort"]))
see("2. commit() waits", write("commit"), ("killed", ["write begins", "write ends", "commit begins", "abort"]))
see("3. partitions() waits", read("partitions"), ("killed", ["partitions begins"]))
PYTHON
quietly python idle.py
