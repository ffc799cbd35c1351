#!/bin/bash
# Run: Celery 5.7.0 with its transport for Kafka (kombu 5.7.0, confluent-kafka 2.16.1) on kfake of 18 September 2026, a broker in Go. Needs
# Go. A queue of ten tasks and a worker with one thread (--pool threads); one of six tasks, and a worker with two processes, the default
# pool, acks_late and a prefetch multiplier of 1, which is killed while the first task, a long one, still runs.
#
# Seen: 1. Seven tasks run. The last three are received, and never run: no error, no line in the log, and no worker gets them later.
#       2. After the kill a new worker runs what came in last, and not the long task, though it was never acknowledged.
#
# Surprising, because acks_late is there for a worker that dies: its task "will be executed again". But an acknowledgement of the
# transport commits the consumer's position, and with it all tasks received so far: the end of a short task acknowledges the long one
# before it, and all that wait. If all of them are committed already, the next acknowledgement has nothing to commit and raises (by its
# code, not traced). The pool of processes goes on all the same; that of threads acknowledges before the function is called, and drops the
# task.
. "$(dirname "$0")/lib/common.sh"
python_with celery==5.7.0 kombu==5.7.0 confluent-kafka==2.16.1
kfake
cat >tasks.py <<'PYTHON'
import os
import time

from celery import Celery

app = Celery("tasks", broker=f"confluentkafka://{os.environ['BOOTSTRAP']}//")
app.conf.update(
    task_acks_late=os.environ["QUEUE"] == "late",
    worker_prefetch_multiplier=1 if os.environ["QUEUE"] == "late" else 4,
    task_default_queue=os.environ["QUEUE"],
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"kafka_consumer_config": {"session.timeout.ms": 6000}},
)


@app.task
def work(name, seconds):
    print("begin", name, file=open(f"{app.conf.task_default_queue}.begun", "a"))
    time.sleep(seconds)
    print("end", name, file=open(f"{app.conf.task_default_queue}.ended", "a"))
PYTHON
cat >workers.py <<'PYTHON'
import os
import signal
import subprocess
import sys
import time

from kafka_clients import create
from seen import see, wait_for

QUEUE = sys.argv[1]
os.environ["QUEUE"] = QUEUE
create(QUEUE)
from tasks import work  # noqa: E402


def names(kind):
    if not os.path.exists(f"{QUEUE}.{kind}"):
        return []
    with open(f"{QUEUE}.{kind}") as lines:
        return [line.split()[1] for line in lines]


def worker(*options):
    command = ["celery", "-A", "tasks", "worker", "--loglevel", "INFO", *options]
    with open(f"{QUEUE}.log", "a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def end(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def log_lines(text):
    with open(f"{QUEUE}.log") as log:
        return sum(text in line for line in log)


if QUEUE == "threads":
    for number in range(10):
        work.delay(str(number), 1)
    process = worker("--pool", "threads", "--concurrency", "1")
    try:
        wait_for(lambda: len(names("ended")) == 10, 40)
        see("1. threads: received", log_lines("received"), 10)
        see("   begun", " ".join(names("begun")), "0 1 2 3 4 5 6")
        see("   warnings and errors", log_lines("WARNING/") + log_lines("ERROR/"), 0)
    finally:
        end(process)
    work.delay("later", 0)
    process = worker("--concurrency", "1")
    try:
        wait_for(lambda: "later" in names("ended"), 90)
    finally:
        end(process)
    see("   and of a new worker", " ".join(names("begun")[7:]), "later")
else:
    for name, seconds in [("long", 120), *((str(number), 1) for number in range(5))]:
        work.delay(name, seconds)
    options = ["--concurrency", "2"]
    process = worker(*options)
    try:
        wait_for(lambda: len(names("ended")) >= 2, 60)
        time.sleep(0.5)
    finally:
        end(process)
    see("2. acks_late: killed while it runs", [name in names("ended") for name in ("long", "0", "1")], [False, True, True])
    work.delay("later", 0)
    process = worker(*options)
    try:
        wait_for(lambda: "later" in names("ended"), 90)
    finally:
        end(process)
    see("   the new worker has run what came last", "later" in names("ended"), True)
    see("   begun", names("begun").count("long"), 1)
PYTHON
quietly python workers.py threads
quietly python workers.py late
