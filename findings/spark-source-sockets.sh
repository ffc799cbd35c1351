#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small streaming source in Python, read into `noop`; and `rate`.
#
# Seen: Each start of a query with a Python source leaves one listening socket in the JVM of the driver when the query has been
#       stopped: the port at which the source's process was to connect. Garbage collection does not close it. A query from
#       `rate` leaves none.
#
# Surprising, because the process of the source ends as it should, and because ports and open files of a driver then limit how
# often its queries may be started again.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >sockets.py <<'PYTHON'
import os
import tempfile
import time

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from seen import see, wait_for
from spark_session import Source, session

LISTEN = "0A"


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self):
        return {"n": int(time.time() * 10)}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class OwnSource(Source):
    def streamReader(self, schema):
        return StreamReader()


spark = session()
spark.dataSource.register(OwnSource)
system = spark._jvm.java.lang.System
jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())


def listening():
    """Return how many sockets of the JVM wait for connections."""
    states = {}
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{jvm}/net/{table}", encoding="ascii") as lines:
            rows = [line.split() for line in list(lines)[1:]]
        states.update({row[9]: row[3] for row in rows})
    folder = f"/proc/{jvm}/fd"
    targets = [os.readlink(os.path.join(folder, each)) for each in os.listdir(folder)]
    return sum(states.get(each.removeprefix("socket:[").removesuffix("]")) == LISTEN for each in targets)


def start_and_stop(source, times):
    frame = spark.readStream.format(source).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        for _ in range(times):
            query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            wait_for(lambda: query.lastProgress and query.lastProgress["numInputRows"] or query.exception())
            query.stop()


start_and_stop("rate", 1)
before = listening()
start_and_stop("rate", 4)
see("listening sockets that four starts from rate leave", listening() - before, 0)
start_and_stop("source", 4)
see("listening sockets that four starts from a Python source leave", listening() - before, 4)
system.gc()
time.sleep(2)
see("after garbage collection", listening() - before, 4)
PYTHON
quietly python sockets.py
