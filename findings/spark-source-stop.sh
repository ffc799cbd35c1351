#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small streaming source in Python.
#
# Seen: stop() of a stream reader is called if a method of the reader raises. It is not called when the query is stopped, when
#       the query ends by itself (availableNow), or when one of its tasks fails: the reader's process just ends.
#
# Surprising, because its documentation speaks of freeing resources: what stop() was to give back (a lease, a session on a
# server, a last report) stays.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >stop.py <<'PYTHON'
import os

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from seen import see, wait_for
from spark_session import Source, note, notes, session, take_notes


class Reader(DataSourceStreamReader):
    def __init__(self, case):
        self.case = case
        self.asked = 0

    def initialOffset(self):
        note(os.getpid())
        return {"n": 0}

    def latestOffset(self):
        self.asked += 1
        if self.case == "reader fails" and self.asked > 3:
            raise ValueError("the reader failed")
        return {"n": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        if self.case == "task fails":
            raise ValueError("the task failed")
        yield (1,)

    def stop(self):
        note("stop")


class OwnSource(Source):
    def streamReader(self, schema):
        return Reader(self.options["case"])


spark = session()
spark.dataSource.register(OwnSource)


def calls_of_stop(case, trigger=None):
    writer = spark.readStream.format("source").option("case", case).load().writeStream.format("noop")
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.option("checkpointLocation", case.replace(" ", "-")).start()
    if case == "stopped":
        wait_for(lambda: query.lastProgress or query.exception())
        query.stop()
    else:
        wait_for(lambda: not query.isActive)
    process = notes()[0]
    ended = wait_for(lambda: not os.path.exists(f"/proc/{process}"))
    assert ended, f"process {process} of the reader still runs"
    return take_notes()[1:]


see("the query is stopped", calls_of_stop("stopped"), [])
see("the query ends by itself", calls_of_stop("ends", {"availableNow": True}), [])
see("a task fails", calls_of_stop("task fails"), [])
see("a method of the reader raises", calls_of_stop("reader fails"), ["stop"])
PYTHON
quietly python stop.py
