#!/bin/bash
# Run: PySpark 4.3.0, a local session with spark.sql.timeType.enabled=true. A streaming query gives each row the current time in several
# ways. It takes two micro-batches, is started again, fails behind the third one, and repeats that one after the next start.
#
# Seen: 1. current_timestamp(), localtimestamp() and unix_timestamp() are the micro-batch's time, which is in the checkpoint: the
#          repetition has the same values.
#       2. current_time(), and CAST('now' AS TIMESTAMP), are read from the clock: the repetition has others.
#       3. TIMESTAMP 'now' is the time at which the DataFrame was made: it stays the same in all micro-batches of a query.
#
# Surprising, because Spark keeps the time of a micro-batch so that a repetition gives the same rows. A filter or a window by
# current_time() gives other ones.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0 pyarrow==26.0.1
cat >batch_time.py <<'PYTHON'
import os

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from seen import see
from spark_session import session

CLOCKS = [
    "current_timestamp()",
    "localtimestamp()",
    "unix_timestamp()",
    "current_time(6)",
    "make_timestamp(current_date(), current_time(6))",
    "CAST('now' AS TIMESTAMP)",
    "to_timestamp('now')",
    "TIMESTAMP 'now'",
]
OF_THE_BATCH, OF_THE_CLOCK, LITERAL = CLOCKS[:3], CLOCKS[3:7], CLOCKS[7:]
spark = session(settings={"spark.sql.timeType.enabled": "true"})
os.mkdir("input")


def arrive(name):
    """Let a file of one row arrive, for one micro-batch."""
    with open(name, "w", encoding="utf-8") as file:
        file.write("row\n")
    os.rename(name, f"input/{name}")


def run(fails=False):
    """Run the query over what has arrived; return the number and the times of each micro-batch."""
    found = []

    def batch(frame, number):
        found.append((number, frame.collect()[0].asDict()))
        if fails:
            raise ValueError("on purpose")

    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load("input")
    times = rows.select(*(F.expr(f"CAST({clock} AS STRING)").alias(clock) for clock in CLOCKS))
    writer = times.writeStream.foreachBatch(batch).option("checkpointLocation", "checkpoint")
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        found.append("on purpose" in str(error))
    return found


def same(clocks, one, other):
    """Return whether each of the clocks shows one time in both micro-batches."""
    return [one[clock] == other[clock] for clock in clocks]


arrive("one")
arrive("two")
(zero, first), (one, second) = run()
arrive("three")
(two, failed), on_purpose = run(fails=True)
[(again, repeated)] = run()
see("numbers of the micro-batches, the last one repeated", (zero, one, two, again), (0, 1, 2, 2))
see("the third one failed on purpose", on_purpose, True)
for number, clocks, repeats in (1, OF_THE_BATCH, True), (2, OF_THE_CLOCK, False):
    see(f"{number}. {', '.join(clocks)}: the same in the repetition", same(clocks, failed, repeated), [repeats] * len(clocks))
see(f"3. {LITERAL[0]}: the same in the first two micro-batches", same(LITERAL, first, second), [True])
see("   the other ways, but for whole seconds", same([*OF_THE_BATCH[:2], *OF_THE_CLOCK], first, second), [False] * 6)
see(f"   {LITERAL[0]}: the same in the repetition", same(LITERAL, failed, repeated), [False])
PYTHON
quietly python batch_time.py
