#!/bin/bash
# Run: Apache Kafka 4.4.0 (two nodes) and the admin client of kafka-python 3.0.12, with Kafka's own tool of 4.3.1, confluent-kafka 2.16.1
# for the rest. A transaction ends while its partition has no leader: the commit returns, and the partition never gets its marker
# (kafka-leaderless-markers). Its record is dated two hours back, so that it is old enough for the tools. Needs a JDK.
#
# Seen: 1. Readers wait for the partition. `kafka-transactions.sh find-hanging` lists the transaction, and describe_producers() of
#          kafka-python shows it.
#       2. find_hanging_transactions() of kafka-python does not list it, whatever age it is asked for.
#       3. It lists one that a producer has just begun, if it is asked for any age.
#
# Surprising, because it is documented to mirror the other tool. It looks for old transactions that a coordinator knows as open, and these
# a coordinator ends by itself. A transaction hangs because no coordinator knows it as open, and that is what it passes over.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12
apache_kafka 4.4.0
jars_of tools org.apache.kafka:kafka-tools:4.3.1
# Makes the coordinators' topic, which the first node shall have.
quietly python -c 'import kafka_clients; kafka_clients.transactional("first")'
second_node
cat >hanging.py <<'PYTHON'
import subprocess
import time
from pathlib import Path

from confluent_kafka.admin import NewTopic
from kafka import KafkaAdminClient, TopicPartition
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable, transactional
from seen import see, wait_for


def leader():
    return ADMIN.list_topics("orders", timeout=30).topics["orders"].partitions[0].leader


def step(done, until):
    """Let the shell go on, and wait for it."""
    Path(done).touch()
    wait_for(Path(until).exists)


ADMIN.create_topics([NewTopic("orders", 1, replica_assignment=[[2]])])["orders"].result(60)
producer = transactional("payer")
producer.begin_transaction()
producer.produce("orders", "record", timestamp=int((time.time() - 7200) * 1000))
producer.flush(60)
step("begun", "stopped")
wait_for(lambda: leader() == -1)
producer.commit_transaction(60)
# The coordinator writes the markers after it has answered.
time.sleep(5)
step("committed", "started")
wait_for(lambda: leader() == 2)
wait_for(lambda: stable("orders") == high("orders"), 30)
see("1. last stable offset and end, 30 s after the leader is back", (stable("orders"), high("orders")), (0, 1))
command = ["java", "-cp", "tools/jars/*", "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", BOOTSTRAP]
listed = subprocess.run([*command, "find-hanging", "--broker-id", "2"], stdout=subprocess.PIPE, text=True, check=True)
see("   Kafka's tool lists", [line.split()[0] for line in listed.stdout.splitlines()[1:]], ["orders"])
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
partition = TopicPartition("orders", 0)
states = admin.describe_producers([partition])[partition].active_producers
see("   kafka-python, describe_producers: open from", [each.current_transaction_start_offset for each in states], [0])
print(f"   the coordinator says {admin.describe_transactions(['payer'])['payer'].state.value}")


def found():
    # It adds five minutes.
    return [each["transactional_id"] for each in admin.find_hanging_transactions(max_transaction_timeout_ms=-300_000)]


see("2. find_hanging_transactions, of any age", found(), [])
create("others")
live = transactional("live")
live.begin_transaction()
live.produce("others", "record")
live.flush(60)
see("3. the same, with a transaction that was just begun", found(), ["live"])
live.abort_transaction(60)
PYTHON
quietly python hanging.py &
python_process=$!
until [ -e begun ]; do sleep 0.2; kill -0 "$python_process"; done
kill -TERM "$SECOND" && wait "$SECOND" || true
touch stopped
until [ -e committed ]; do sleep 0.2; kill -0 "$python_process"; done
start_node 2 broker "$(sed -n 's/^listeners=.*://p' node-2.properties)" "" --ignore-formatted
touch started
wait "$python_process"
