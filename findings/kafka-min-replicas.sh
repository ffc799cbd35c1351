#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node, whose min.insync.replicas is 2) and confluent-kafka 2.16.1.
#
# Seen: a topic with fewer replicas than min.insync.replicas can be created, and takes every write: no more replicas are asked
#       for than the topic has.
#       1. With one replica, writes with acks=all and transactions succeed. Readers get the records.
#       2. The same for a topic whose own min.insync.replicas is 3, and is raised to 4 while a transaction is open in it.
#
# Surprising, because the setting reads like a promise that no acknowledged record is on one machine only, and because Kafka 3.6
# refuses such writes with NOT_ENOUGH_REPLICAS (3.7 does not).
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 min.insync.replicas=2
cat >replicas.py <<'PYTHON'
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_clients import ADMIN, BOOTSTRAP, create, stable, transactional
from seen import see, wait_for


def needed(topic):
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return next(iter(ADMIN.describe_configs([resource]).values())).result()["min.insync.replicas"].value


def write(topic):
    answers = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "message.timeout.ms": 20_000})
    producer.produce(topic, "record", on_delivery=lambda error, _: answers.append(error))
    producer.flush()
    return answers


create("cluster")
see("1. min.insync.replicas of a topic with one replica", needed("cluster"), "2")
see("   errors of a write with acks=all", write("cluster"), [None])
producer = transactional("cluster")
producer.begin_transaction()
producer.produce("cluster", "record")
producer.commit_transaction(20)
see("   readable at read_committed", wait_for(lambda: stable("cluster") == 3), True)

create("topic", **{"min.insync.replicas": "3"})
see("2. the topic's own", needed("topic"), "3")
producer.begin_transaction()
producer.produce("topic", "record")
producer.flush()
raised = ConfigEntry("min.insync.replicas", "4", incremental_operation=AlterConfigOpType.SET)
resource = ConfigResource(ConfigResource.Type.TOPIC, "topic", incremental_configs=[raised])
next(iter(ADMIN.incremental_alter_configs([resource]).values())).result()
see("   raised while a transaction is open", needed("topic"), "4")
producer.commit_transaction(20)
see("   readable after the commit", wait_for(lambda: stable("topic") == 2), True)
see("   errors of a write with acks=all", write("topic"), [None])
PYTHON
quietly python replicas.py
