#!/bin/bash
# Run: PySpark 4.3.0, a local session; a write with Spark's own parquet format, interrupted as by Ctrl-C while a task runs.
#
# Seen: PySpark installs a handler for SIGINT that cancels all jobs and raises KeyboardInterrupt. While an action waits, the
#       handler's own call to the JVM fails, because the main thread is inside the read of another call. The user sees the
#       interrupt; nothing is canceled, the job goes on in the JVM, and its rows are committed some seconds later.
#       The same call from another thread cancels the job.
#
# Surprising, because the handler exists to cancel jobs, and because a notebook that shows KeyboardInterrupt suggests that
# the write has ended: to run the cell again writes the rows a second time.
. "$(dirname "$0")/lib/common.sh"
python_with pyspark==4.3.0
cat >interrupted.py <<'PYTHON'
import os
import signal
import threading
import time
from pathlib import Path

from pyspark.sql.functions import udf
from seen import see, wait_for
from spark_session import session

BEGUN = Path("begun").absolute()
spark = session()


@udf("long")
def slow(number):
    BEGUN.touch()
    time.sleep(1)
    return number


def write(out):
    spark.range(0, 4, 1, 1).select(slow("id").alias("id")).write.format("parquet").save(out)


def when_begun(act):
    def wait():
        wait_for(BEGUN.exists)
        time.sleep(0.5)
        act()

    threading.Thread(target=wait).start()


def active():
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


BEGUN.unlink(missing_ok=True)
when_begun(lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    write("first")
    ended = "well"
except BaseException as error:
    ended = type(error).__name__
see("the interrupted write ends with", ended, "KeyboardInterrupt")
see("its rows so far", Path("first/_SUCCESS").exists(), False)
see("jobs that are active", active(), 1)
wait_for(lambda: not active())
see("rows of the interrupted write", spark.read.parquet("first").count(), 4)

BEGUN.unlink(missing_ok=True)
when_begun(spark.sparkContext.cancelAllJobs)
try:
    write("second")
    ended = "well"
except Exception as error:
    ended = "an error"
see("the write that another thread cancels ends with", ended, "an error")
see("its rows are there", Path("second/_SUCCESS").exists(), False)
PYTHON
quietly python interrupted.py
