#!/bin/bash
# Run: Apache Kafka 4.4.0 (two nodes) with its own tool, kafka-transactions.sh, and confluent-kafka 2.16.1. The coordinators' topic has two
# partitions of one replica, one on each node. Eight producers write a record to a topic of the first node. Two of them commit
# while that node is paused: the commits are decided and return, the markers are to follow. Then the second node, their coordinator, is
# killed. The records' times are of an hour ago, in place of a wait: the tool reports what is older than 15 minutes.
#
# Seen: 1. `list` names the ids of the first node only, without an error, and exits with 0: half of the open transactions are missing.
#       2. `find-hanging` names all four of the second node as hanging, the two that are committed as well.
#       3. `abort` of one of these two succeeds. The node comes back: that record is never read. The other one is.
#
# Surprising, because a commit that has returned is to survive each outage, and because the tool is there for outages. A broker whose
# coordinators load says so; a partition of theirs without a leader is nowhere in an answer. What no broker lists counts as ended.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 transaction.state.log.num.partitions=2
jars_of tools org.apache.kafka:kafka-tools:4.4.0
second_node
cat >drive.py <<'PYTHON'
import os
import signal
import subprocess
from pathlib import Path
from time import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka_clients import ADMIN, BOOTSTRAP, high, stable
from seen import see, wait_for

COMMAND = ["java", "-XX:TieredStopAtLevel=1", "-cp", "tools/jars/*", "org.apache.kafka.tools.TransactionsCommand"]


def tool(*arguments):
    """Return the tool's lines after the first one, of its columns' names."""
    command = [*COMMAND, "--bootstrap-server", BOOTSTRAP, *arguments]
    return subprocess.check_output(command, text=True, timeout=200).splitlines()[1:]


def node(wanted):
    """Have the shell kill or start the second node, and wait until it has."""
    Path("wanted.new").write_text(f"{wanted}\n")
    Path("wanted.new").rename("wanted")
    wait_for(lambda: not Path("wanted").exists())


def leaders():
    topic = ADMIN.list_topics("__transaction_state", timeout=60).topics["__transaction_state"]
    return {number: partition.leader for number, partition in topic.partitions.items()}


def begin(name):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", name, timestamp=int(time() * 1000) - 3_600_000)
    producer.flush(60)
    return producer


def coordinator(name):
    """Return the node of an id: by Java's hash, here without its sign."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return coordinators[(code & 0x7FFFFFFF) % 2]


wait_for(lambda: len(ADMIN.list_topics(timeout=60).brokers) == 2)
ADMIN.create_topics([NewTopic("orders", 1, replica_assignment=[[1]])])["orders"].result(60)
producers = {"job-0": begin("job-0")}
coordinators = leaders()
see("nodes of the coordinators", sorted(coordinators.values()), [1, 2])
producers |= {name: begin(name) for name in (f"job-{number}" for number in range(1, 8))}
names = {number: [name for name in producers if coordinator(name) == number] for number in (1, 2)}
aborted, other, *_ = names[2]
os.kill(int(os.environ["FIRST"]), signal.SIGSTOP)
producers[aborted].commit_transaction(30)
producers[other].commit_transaction(30)
node("kill")
os.kill(int(os.environ["FIRST"]), signal.SIGCONT)
wait_for(lambda: -1 in leaders().values())
see("1. listed", sorted(line.split()[0] for line in tool("list")) == names[1], True)
offsets = {list(producers)[int(line.split()[5])] for line in tool("find-hanging", "--broker-id", "1")}
see("2. hanging", sorted(offsets) == names[2], True)
tool("abort", "--topic", "orders", "--partition", "0", "--start-offset", str(list(producers).index(aborted)))
node("start")
wait_for(lambda: -1 not in leaders().values())
for name, producer in producers.items():
    if name not in (aborted, other):
        producer.abort_transaction(90)
wait_for(lambda: stable("orders") == high("orders"))
reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "enable.partition.eof": True})
reader.assign([TopicPartition("orders", 0, 0)])
read = []
while not (message := reader.poll(60)).error():
    read.append(message.value().decode())
reader.close()
print(f"committed: {aborted}, {other}")
see("3. read, of the two that are committed", read == [other], True)
PYTHON
export FIRST=${nodes[0]}
port=$(sed -n 's/^listeners=.*://p' node-2.properties)
quietly python drive.py &
python_process=$!
while kill -0 "$python_process" 2>/dev/null; do
    if [ -e wanted ]; then
        if [ "$(cat wanted)" = kill ]; then
            kill -KILL "$SECOND" && wait "$SECOND" 2>/dev/null || true
        else
            start_node 2 broker "$port" "" --ignore-formatted
        fi
        rm wanted
    fi
    sleep 0.2
done
wait "$python_process"
