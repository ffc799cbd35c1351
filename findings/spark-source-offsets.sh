#!/bin/bash
# Run: PySpark 4.3.0 and pyarrow 26.0.1, a local session with a small streaming source in Python.
#
# Seen: 1. initialOffset() is asked twice before the first micro-batch of a source with latestOffset(start, limit). The end is
#          planned from the first answer, the start is the second one: what lies between is not read.
#       2. A source whose latestOffset goes back is followed: a micro-batch from 10 to 4, then one from 4 to 8. Rows come twice.
#       3. With availableNow the last offset is never reported to commit(): a query of one micro-batch reports none.
#
# Surprising, because an initial offset is looked up once elsewhere, because an end below a start could be refused, and because
# a query that ends by itself could report its end: a source that deletes what is committed keeps its last part.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >source.py <<'PYTHON'
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from seen import see, wait_for
from spark_session import Source, note, notes, session, take_notes


class Reader(DataSourceStreamReader):
    def __init__(self, case):
        self.case = case
        self.asked = 0
        self.ends = [10, 4, 8]

    def initialOffset(self):
        answer = {"n": 100 * self.asked if self.case == "grows" else 0}
        self.asked += 1
        note(f"initialOffset {answer['n']}")
        return answer

    def getDefaultReadLimit(self):
        return ReadAllAvailable()

    def latestOffset(self, start, limit):
        if self.case == "back":
            end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        else:
            end = 200
        if end != start["n"]:
            note(f"end {end} planned from {start['n']}")
        return {"n": end}

    def partitions(self, start, end):
        note(f"read from {start['n']} to {end['n']}")
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition):
        return ((n,) for n in range(*partition.value))

    def commit(self, end):
        note(f"commit {end['n']}")


class OwnSource(Source):
    def streamReader(self, schema):
        return Reader(self.options["case"])


spark = session()
spark.dataSource.register(OwnSource)


def run(case, micro_batches, **trigger):
    take_notes()
    rows = []
    writer = spark.readStream.format("source").option("case", case).load().writeStream
    writer = writer.option("checkpointLocation", f"checkpoint-{case}-{len(trigger)}")
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.foreachBatch(lambda frame, _: rows.append([row.n for row in frame.collect()])).start()
    wait_for(lambda: len(rows) >= micro_batches or query.exception())
    if trigger:
        query.awaitTermination(120)
    query.stop()
    return rows, take_notes()


rows, calls = run("grows", 1)
see("1. calls of a source whose initial offset grows", calls[:4],
    ["initialOffset 0", "end 200 planned from 0", "initialOffset 100", "read from 100 to 200"])
see("   first and last row", (rows[0][0], rows[0][-1]), (100, 199))
rows, calls = run("back", 3)
see("2. ranges of a source that goes back", [call for call in calls if call.startswith("read")],
    ["read from 0 to 10", "read from 10 to 4", "read from 4 to 8"])
see("   rows that came twice", sorted(set(rows[0]) & set(rows[2])), [4, 5, 6, 7])
rows, calls = run("plain", 1, availableNow=True)
see("3. rows with availableNow", len(rows[0]), 200)
see("   commits", [call for call in calls if call.startswith("commit")], [])
PYTHON
quietly python source.py
