#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1.
#
# Seen: a topic is deleted and made again while a transaction is open in it.
#       1. The commit succeeds, and the new topic gets the marker: its offset 0 belongs to a transaction that it never had a record of.
#       2. A transaction that goes on in the new topic is not refused either: the commit succeeds, with the records written after
#          the deletion and without those before it.
#
# Surprising, because topics have ids since Kafka 2.8, and because half of a transaction is what transactions exclude: the
# coordinator knows partitions by name.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >again.py <<'PYTHON'
import time

from confluent_kafka import Consumer, TopicPartition
from kafka_clients import ADMIN, BOOTSTRAP, create, delete, transactional
from kafka_log import batches
from seen import see, wait_for


def has_leader(topic):
    return ADMIN.list_topics(topic, timeout=10).topics[topic].partitions[0].leader == 1


def in_topic_made_again(topic, goes_on):
    create(topic)
    producer = transactional(topic)
    producer.begin_transaction()
    producer.produce(topic, "before")
    producer.flush()
    delete(topic)
    wait_for(lambda: topic not in ADMIN.list_topics(timeout=10).topics)
    create(topic)
    wait_for(lambda: topic in ADMIN.list_topics(timeout=10).topics and has_leader(topic))
    errors = []
    if goes_on:
        producer.produce(topic, "after", on_delivery=lambda error, _: errors.append(error))
        producer.flush()
    producer.commit_transaction()
    see("   errors of the writes after the deletion", [error for error in errors if error], [])
    wait_for(lambda: any(batch.is_marker for batch in batches(topic)))
    return [(batch.first, "marker" if batch.is_marker else "record") for batch in batches(topic)]


see("1. the new topic after the commit", in_topic_made_again("left", False), [(0, "marker")])
see("2. the new topic, if the transaction goes on", in_topic_made_again("used", True), [(0, "record"), (1, "marker")])
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
consumer.assign([TopicPartition("used", 0, 0)])
see("   what a reader gets", wait_for(lambda: consumer.poll(1)).value(), b"after")
consumer.close()
PYTHON
quietly python again.py
