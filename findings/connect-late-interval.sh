#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and a worker of Kafka Connect 4.4.0 with exactly.once.source.support=enabled. A small source
# connector that counts has transaction.boundary=interval, with an interval of 45 s, which is longer than the timeout of its
# transactions: 10 s here. The default is 60 s. Needs a JDK.
#
# Seen: The worker takes the connector. The task's transaction is aborted after 10 s. From then on no record reaches the topic, but
#       the task is RUNNING until the interval ends. Then it fails. After a restart of the task the same begins again.
#
# Surprising, because the interval is refused nowhere, and because the task looks healthy: each record that is refused is one
# error in the worker's log. An administrator who ends the transaction of such a task leaves it like that, too.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
. "$lib/connect.sh"
port=$(free_ports 1)
worker etl "$port"
cat >drive.py <<'PYTHON'
import sys
import time

from connect_worker import ask
from kafka_clients import create, high, stable
from seen import see, wait_for

CONNECTORS = f"http://127.0.0.1:{sys.argv[1]}/connectors"


def task():
    """Return the state of the connector's task, and its error."""
    answer = ask(f"{CONNECTORS}/late/status")
    only = answer["tasks"][0] if answer and answer["tasks"] else {}
    return only.get("state"), only.get("trace", "")


create("numbers")
wait_for(lambda: ask(CONNECTORS) is not None)
settings = {"connector.class": "count.Count", "tasks.max": "1", "topic": "numbers", "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": "45000", "producer.override.transaction.timeout.ms": "10000"}
# A worker that is still joining its cluster refuses: ask again.
wait_for(lambda: ask(CONNECTORS, "POST", {"name": "late", "config": settings}))
for turn in ("first", "second"):
    before = high("numbers")
    wait_for(lambda: high("numbers") > before)
    see(f"{turn} start: records of an open transaction", stable("numbers") < high("numbers"), True)
    wait_for(lambda: stable("numbers") == high("numbers"))
    end = high("numbers")
    time.sleep(10)
    see("  10 s after its abort: the task, and new records", (task()[0], high("numbers") - end), ("RUNNING", 0))
    wait_for(lambda: task()[0] == "FAILED")
    state, trace = task()
    see("  after the interval: the task, and new records", (state, high("numbers") - end), ("FAILED", 0))
    causes = [line[:200] for line in trace.splitlines() if not line.startswith("\t")]
    print("   ", "\n    ".join(causes))
    ask(f"{CONNECTORS}/late/tasks/0/restart", "POST")
PYTHON
quietly python drive.py "$port"
