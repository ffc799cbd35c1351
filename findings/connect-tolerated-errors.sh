#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and two workers of Kafka Connect 4.4.0, one of them with exactly.once.source.support=enabled. A
# small source connector with errors.tolerance=all counts 1, 2, 3, and so on. The third record is larger than its topic takes.
# Needs a JDK.
#
# Seen: 1. Without exactly once: the record is skipped, the task stays RUNNING, and 4 follows 2.
#       2. With exactly once: the task is FAILED, after each restart again, and no reader gets past 2.
#
# Surprising, because KIP-779 made errors.tolerance=all hold for what the node refuses, and because the worker takes the setting with
# exactly once, too. There the error comes back when the transaction is committed, and nothing is tolerated then.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
. "$lib/connect.sh"
ports=($(free_ports 2))
worker plain "${ports[0]}" exactly.once.source.support=disabled
worker exact "${ports[1]}"
cat >drive.py <<'PYTHON'
import sys

from confluent_kafka import Consumer, TopicPartition
from connect_worker import ask
from kafka_clients import BOOTSTRAP, create
from seen import see, wait_for


def values(topic, at_least=0):
    """Return the topic's committed values, once there are so many or after a minute."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": topic, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    wait_for(lambda: found.extend(m.value().decode() for m in consumer.consume(9, 1)) or len(found) >= at_least, 60)
    consumer.close()
    return found


def task(connectors, topic):
    """Return the state of the connector's task, and the lines of its error that name causes."""
    answer = ask(f"{connectors}/{topic}/status")
    only = answer["tasks"][0] if answer and answer["tasks"] else {}
    return only.get("state"), [line[:150] for line in only.get("trace", "").splitlines() if not line.startswith("\t")]


def count(port, topic):
    """Start the connector, and return the address of the worker's connectors."""
    connectors = f"http://127.0.0.1:{port}/connectors"
    create(topic, **{"max.message.bytes": "1000"})
    settings = {"connector.class": "count.Count", "tasks.max": "1", "topic": topic, "large": "3", "errors.tolerance": "all"}
    # A worker that is still joining its cluster refuses: ask again.
    wait_for(lambda: ask(connectors, "POST", {"name": topic, "config": settings}))
    return connectors


plain = count(sys.argv[1], "plain")
see("1. without exactly once", values("plain", 4)[:4], ["1", "2", "4", "5"])
see("   its task", task(plain, "plain")[0], "RUNNING")
exact = count(sys.argv[2], "exact")
wait_for(lambda: task(exact, "exact")[0] == "FAILED")
for turn in ("started", "restarted"):
    state, causes = task(exact, "exact")
    see(f"2. with exactly once, {turn}", state, "FAILED")
    print("   ", "\n    ".join(causes))
    ask(f"{exact}/exact/tasks/0/restart", "POST")
    wait_for(lambda: task(exact, "exact")[0] == "RUNNING", 20)
    wait_for(lambda: task(exact, "exact")[0] == "FAILED")
see("   what readers get", [each for each in values("exact") if each not in ("1", "2")], [])
PYTHON
quietly python drive.py "${ports[@]}"
