#!/bin/bash
# Run: PySpark 4.3.0. A streaming query of Spark's "rate-micro-batch" source into "noop", with spark.sql.streaming.minBatchesToRetain
# raised. Its checkpoint gets the files of 20,000 micro-batches, copies of its own, as after a day of micro-batches of four
# seconds. The query is stopped and started: on the short checkpoint, on the long one, and there with the default of 100.
#
# Seen: 1. The start on the long checkpoint takes many times as long: 20 to 80 s instead of 1 s on a busy machine. A micro-batch takes
#          no longer than before.
#       2. With minBatchesToRetain=100 the start takes as long, and after its first micro-batch most of the old files are still
#          there. They go in the background, the offsets first, while the query runs.
#
# Surprising, because only the newest files are needed: the start lists both folders, all of them, again and again. On an object store
# each list is a request for each thousand files. And lowering the setting helps the start after the next, at the earliest.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0
cat >drive.py <<'PYTHON'
import os
import shutil
import statistics
import time

from seen import see, wait_for
from spark_session import session

LENGTH = 20_000
FOLDERS = ("offsets", "commits")
spark = session()


def retain(count):
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(count))


def run(checkpoint):
    """Run a query for some micro-batches; return the seconds before the end of the first, and those of one after it, and old files then."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    began = time.monotonic()
    query = source.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    wait_for(lambda: query.recentProgress)
    first, left = time.monotonic() - began, len(numbers(checkpoint, "commits"))
    wait_for(lambda: len(query.recentProgress) > 6)
    query.stop()
    later = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress[1:]]
    print(f"  first {first:.1f} s, then {statistics.median(later):.1f} s each")
    return first, statistics.median(later), left


def numbers(checkpoint, folder):
    return [int(name) for name in os.listdir(f"{checkpoint}/{folder}") if name.isdigit()]


def lengthen(checkpoint):
    """Add the files of further micro-batches, and their checksums, which say the same as the last ones."""
    for folder in FOLDERS:
        last = max(numbers(checkpoint, folder))
        for number in range(last + 1, LENGTH):
            for name in ("{}", ".{}.crc"):
                shutil.copyfile(f"{checkpoint}/{folder}/{name.format(last)}", f"{checkpoint}/{folder}/{name.format(number)}")


retain(10 * LENGTH)
# The first query also loads Spark's classes.
for _ in range(2):
    run("checkpoint")
print("short")
short, each, _ = run("checkpoint")
lengthen("checkpoint")
print("long")
long, each_of_long, _ = run("checkpoint")
see("1. the start takes more than five times as long", long > 5 * short, True)
see("   a micro-batch takes three times as long", each_of_long > 3 * each, False)
retain(100)
print("long, 100 to be kept")
again, _, left = run("checkpoint")
see("2. the start takes more than five times as long", again > 5 * short, True)
see("   most files are there after the first micro-batch", left > LENGTH / 2, True)
spark.stop()
PYTHON
quietly python drive.py
