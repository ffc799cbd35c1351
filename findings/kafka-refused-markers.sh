#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1.
#
# Seen: max.message.bytes of a topic is below the size of a marker, 78 bytes, when a transaction ends.
#       1. The commit returns. The partition refuses the marker, and readers wait.
#       2. The setting is raised. The coordinator does not send the marker again: 30 s later readers still wait.
#       3. The node is started again. It sends the marker, and the record can be read.
#
# Surprising, because the commit has returned, and because the cause is gone and its effect stays.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >markers.py <<'PYTHON'
import sys

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_clients import ADMIN, create, high, stable, transactional
from seen import see, wait_for


def allow(count: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    next(iter(ADMIN.incremental_alter_configs([resource]).values())).result()


def ends(seconds: float) -> tuple[int, int]:
    wait_for(lambda: stable("orders") == high("orders"), seconds)
    return stable("orders"), high("orders")


if sys.argv[1] == "before":
    create("orders")
    producer = transactional("orders")
    producer.begin_transaction()
    producer.produce("orders", "record")
    producer.flush(60)
    allow(60)
    producer.commit_transaction(60)
    see("1. last stable offset and end, 10 s after the commit has returned", ends(10), (0, 1))
    allow(1_048_588)
    see("2. the same, 30 s after the setting was raised", ends(30), (0, 1))
else:
    see("3. the same after a restart of the node", ends(60), (2, 2))
PYTHON
quietly python markers.py before
kill -TERM "${nodes[0]}" && wait "${nodes[0]}" || true
controller=$(sed -n 's/^controller.quorum.bootstrap.servers=//p' common.properties)
start_node 1 broker,controller "${BOOTSTRAP#*:}" ",CONTROLLER://$controller" --standalone --ignore-formatted
quietly python markers.py after
