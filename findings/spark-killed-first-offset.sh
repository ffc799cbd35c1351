#!/bin/bash
# Run: PySpark 4.3.0. Drivers that start a streaming query on a new checkpoint ("rate" into "noop") are killed as soon as a file shows
# up in the checkpoint's folder of offsets, until one leaves that file behind. Then the query is started again.
#
# Seen: 1. A killed driver leaves one hidden file, ".0.<uuid>.tmp", and nothing else there: no micro-batch was planned.
#       2. The query never starts again: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY, at each start.
#       3. With spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart=false, or without the file, it starts.
#
# Surprising, because a checkpoint is there to survive a kill at any moment, and because the file is Spark's own. Killed a moment
# earlier or later, the query starts. The query has no state, which the error's name speaks of.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0
cat >once.py <<'PYTHON'
import sys

from spark_session import session

spark = session(settings={"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": sys.argv[2]})
query = spark.readStream.format("rate").load().writeStream.format("noop").option("checkpointLocation", sys.argv[1])
try:
    query.trigger(once=True).start().awaitTermination(60)
    print("done")
except Exception as error:
    print("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" if "CHECKPOINT_LOCATION_NOT_EMPTY" in str(error) else error)
PYTHON
cat >drive.py <<'PYTHON'
import os
import shutil
import signal
import subprocess
import sys

from seen import see


def run(checkpoint, verifies="true"):
    """Start the query once more, and return how it ended."""
    done = subprocess.run([sys.executable, "once.py", checkpoint, verifies], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip()


def killed(checkpoint):
    """Start the query, kill its processes at the first file of offsets, and return the files that are left there."""
    folder = os.path.join(checkpoint, "offsets")
    process = subprocess.Popen(
        [sys.executable, "once.py", checkpoint, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None:
        try:
            found = os.listdir(folder)
        except FileNotFoundError:
            continue
        if found:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.wait()
    return sorted(os.listdir(folder))


for attempt in range(20):
    checkpoint = os.path.abspath(f"checkpoint-{attempt}")
    left = killed(checkpoint)
    print(f"killed, and left: {left}")
    if left and all(name.startswith(".") for name in left):
        break
see("what is left is hidden", [name.split(".")[1] for name in left], ["0"])
see("the query is started again", [run(checkpoint) for _ in range(2)], ["STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"] * 2)
cleaned = shutil.copytree(checkpoint, "cleaned")
for name in left:
    os.remove(os.path.join(cleaned, "offsets", name))
see("the same without the file", run(os.path.abspath(cleaned)), "done")
see("the same with verifyCheckpointDirectoryEmptyOnStart=false", run(checkpoint, "false"), "done")
PYTHON
python drive.py
