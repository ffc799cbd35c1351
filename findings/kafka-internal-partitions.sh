#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1. Both internal topics, __consumer_offsets and __transaction_state, have one
# partition. Each gets three more, as other topics do under load. Eight groups have committed an offset, and eight producers are
# killed in a transaction with a timeout of 10 s. Then the node is started again.
#
# Seen: 1. Both requests are accepted. As long as the node runs, offsets and transactions are as before.
#       2. After the restart six of the eight groups have no offset.
#       3. Of the eight transactions two are aborted by their timeout. Six are still open 30 s later.
#       4. The next producer with each id starts and commits a record. In these six topics no reader at read_committed gets it: the old
#          transaction is still open behind it.
#
# Surprising, because the node refuses much that harms its internal topics, and because each call succeeds. Ids and groups find their
# coordinator by a hash and the number of partitions, which a node reads when it starts: their state is in the old partition.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
cat >partitions.py <<'PYTHON'
import os
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable
from seen import see, wait_for

NUMBERS = range(8)
INTERNAL = ("__consumer_offsets", "__transaction_state")


def group(number):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": f"group-{number}"})


def offsets():
    """Return the offset that each group has committed, None if there is none."""
    found = []
    for number in NUMBERS:
        consumer = group(number)
        only = consumer.committed([TopicPartition("input", 0)], timeout=60)[0]
        found.append(only.offset if only.offset >= 0 else None)
        consumer.close()
    return found


def write(number):
    """Begin a transaction of one record in the producer's own topic."""
    settings = {"bootstrap.servers": BOOTSTRAP, "transactional.id": f"app-{number}", "transaction.timeout.ms": 10_000}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(f"output-{number}", "record")
    producer.flush(60)
    return producer


def held_back():
    """Return the numbers of the topics that a read_committed reader cannot read to the end."""
    return [number for number in NUMBERS if stable(f"output-{number}") < high(f"output-{number}")]


if sys.argv[1] == "before":
    for topic in ("input", *(f"output-{number}" for number in NUMBERS)):
        create(topic)
    for number in NUMBERS:
        consumer = group(number)
        consumer.commit(offsets=[TopicPartition("input", 0, 7)], asynchronous=False)
        consumer.close()
        write(number).commit_transaction(60)
    for answer in ADMIN.create_partitions([NewPartitions(topic, 4) for topic in INTERNAL]).values():
        answer.result()
    topics = ADMIN.list_topics(timeout=60).topics
    see("1. partitions", [len(topics[topic].partitions) for topic in INTERNAL], [4, 4])
    for number in NUMBERS:
        write(number).commit_transaction(60)
    see("   offsets of the groups", offsets(), [7] * 8)
    see("   read to the end after a commit", wait_for(lambda: not held_back()), True)
    killed = [write(number) for number in NUMBERS]
    see("   held back by open transactions", held_back(), list(NUMBERS))
    sys.stdout.flush()
    os._exit(0)
see("2. offsets of the groups", offsets(), [None, None, 7, None, None, None, 7, None])
wait_for(lambda: len(held_back()) < 7)
time.sleep(30)
see("3. held back by transactions that are past their timeout", held_back(), [1, 2, 3, 5, 6, 7])
ends = [high(f"output-{number}") for number in NUMBERS]
for number in NUMBERS:
    write(number).commit_transaction(60)
wait_for(lambda: not held_back(), 20)
see("4. offsets that the next producers have filled, with their marker", [high(f"output-{n}") - ends[n] for n in NUMBERS], [2] * 8)
see("   held back after the commit", held_back(), [1, 2, 3, 5, 6, 7])
PYTHON
quietly python partitions.py before
kill -TERM "${nodes[0]}" && wait "${nodes[0]}" || true
controller=$(sed -n 's/^controller.quorum.bootstrap.servers=//p' common.properties)
start_node 1 broker,controller "${BOOTSTRAP#*:}" ",CONTROLLER://$controller" --standalone --ignore-formatted
quietly python partitions.py after
