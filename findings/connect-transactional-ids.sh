#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and two clusters of Kafka Connect 4.4.0, one worker each, with exactly.once.source.support=enabled.
# They share no topic. Their group ids are "etl" and "etl-orders". "etl" runs a connector with the name "orders-eu", and "etl-orders"
# one with the name "eu", both of a small source connector that counts. Needs a JDK.
#
# Seen: 1. The task of "eu" starts, and that of "orders-eu" fails for good. Its error says that its transaction has expired, and
#          advises a longer timeout and shorter intervals, or that a flush has failed, by the step at which it was fenced.
#       2. The failed task is restarted: it runs, and now the task of "eu" fails.
#       3. Both tasks have the transactional id "etl-orders-eu-0": group id, name and number with a hyphen between them.
#
# Surprising, because both group ids and both names are unique, which is all that is asked for, and because no error names the
# other cluster: no transaction was longer than a second, and a longer timeout changes nothing.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12
apache_kafka 4.4.0
. "$lib/connect.sh"
ports=($(free_ports 2))
worker etl "${ports[0]}"
worker etl-orders "${ports[1]}"
cat >drive.py <<'PYTHON'
import sys

import kafka
from connect_worker import ask
from kafka_clients import BOOTSTRAP, create, high
from seen import see, wait_for

ETL, ETL_ORDERS = (f"http://127.0.0.1:{port}/connectors" for port in sys.argv[1:])


def task(connectors, name):
    """Return the state of the connector's task, and its error."""
    answer = ask(f"{connectors}/{name}/status")
    only = answer["tasks"][0] if answer and answer["tasks"] else {}
    return only.get("state"), only.get("trace", "")


def start(connectors, name, topic):
    create(topic)
    wait_for(lambda: ask(connectors) is not None)
    settings = {"connector.class": "count.Count", "tasks.max": "1", "topic": topic}
    # A worker that is still joining its cluster refuses: ask again.
    wait_for(lambda: ask(connectors, "POST", {"name": name, "config": settings}))
    wait_for(lambda: high(topic) > 4)
    see(f"the task of {name}", task(connectors, name)[0], "RUNNING")


def failed(connectors, name):
    wait_for(lambda: task(connectors, name)[0] == "FAILED")
    state, trace = task(connectors, name)
    see(f"the task of {name}", state, "FAILED")
    causes = [line[:200] for line in trace.splitlines() if not line.startswith("\t")]
    print(" ", "\n  ".join(causes))


start(ETL, "orders-eu", "first")
start(ETL_ORDERS, "eu", "second")
failed(ETL, "orders-eu")
print("restarting it")
ask(f"{ETL}/orders-eu/tasks/0/restart", "POST")
wait_for(lambda: task(ETL, "orders-eu")[0] == "RUNNING")
failed(ETL_ORDERS, "eu")
see("the task of orders-eu", task(ETL, "orders-eu")[0], "RUNNING")
with kafka.KafkaAdminClient(bootstrap_servers=BOOTSTRAP) as admin:
    listed = [each.transactional_id for broker in admin.list_transactions().values() for each in broker]
ids = sorted(each for each in listed if not each.startswith("connect-cluster-"))
see("transactional ids, but for those of the clusters", ids, ["etl-orders-eu-0"])
PYTHON
quietly python drive.py "${ports[@]}"
