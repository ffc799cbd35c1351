#!/bin/bash
# Run: two packages that take the place of confluent-kafka in tests, kafka-mocha 2.3.0 and mockafka-py 0.2.3, with confluent-kafka
# 2.16.1. No broker is there. A producer commits a transaction, aborts one, and leaves one open; a consumer reads at read_committed.
#
# Seen: 1. mockafka-py: all three records are read. The calls of a transaction do nothing.
#       2. kafka-mocha: an abort drops what is still in the producer's buffer. What has left it, by flush() or after linger.ms, is
#          read, and so is what is open. The markers are read as well, as messages of a text.
#
# Surprising, because kafka-mocha has a coordinator that fences producers and checks the states of a transaction, and because a flush
# changes nothing of a transaction in Kafka. A test of an abort passes or fails by the time that a record has waited.
. "$(dirname "$0")/lib/common.sh"
python_with kafka-mocha==2.3.0 mockafka-py==0.2.3 'confluent-kafka[schemaregistry,avro,json]==2.16.1'
cat >mocha.py <<'PYTHON'
import sys

import confluent_kafka
from kafka_mocha import mock_consumer, mock_producer


@mock_consumer()
@mock_producer()
def run(flushes: bool):
    """Print the values that a consumer sees; a marker by its type."""
    settings = {"bootstrap.servers": "none:9092", "enable.idempotence": True, "acks": "all", "transactional.id": "id", "linger.ms": 60_000}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    for value in ("committed", "aborted", "open"):
        producer.begin_transaction()
        producer.produce("topic", value.encode(), partition=0)
        if flushes:
            producer.flush()
        if value == "committed":
            producer.commit_transaction()
        elif value == "aborted":
            producer.abort_transaction()
    settings = {"bootstrap.servers": "none:9092", "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
    consumer.subscribe(["topic"])
    values = []
    for _ in range(10):
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            value = message.value().decode()
            values.append(next((f"marker {kind}" for kind in ("COMMIT", "ABORT") if f"'{kind}'" in value), value))
    print("read:", *values, sep="\n")


run(sys.argv[1] == "flush")
PYTHON
cat >drive.py <<'PYTHON'
import subprocess
import sys

from mockafka import FakeAdminClientImpl, FakeConsumer, FakeProducer
from mockafka.admin_client import NewTopic
from seen import see


def mocha(flushes):
    """Return what a consumer of kafka-mocha reads, in a process of its own."""
    command = [sys.executable, "mocha.py", "flush" if flushes else "none"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout.splitlines()
    return lines[lines.index("read:") + 1 :]


def mockafka():
    """Return what a consumer of mockafka-py reads."""
    FakeAdminClientImpl().create_topics([NewTopic("topic", 1)])
    producer = FakeProducer({"transactional.id": "id"})
    producer.init_transactions()
    for value in ("committed", "aborted", "open"):
        producer.begin_transaction()
        producer.produce("topic", value, partition=0)
        producer.flush()
        if value == "committed":
            producer.commit_transaction()
        elif value == "aborted":
            producer.abort_transaction()
    consumer = FakeConsumer({"isolation.level": "read_committed"})
    consumer.subscribe(["topic"])
    return [message.value(payload=None).decode() for _ in range(9) if (message := consumer.poll()) is not None]


see("mockafka-py", mockafka(), ["committed", "aborted", "open"])
see("kafka-mocha, flushed", mocha(True), ["committed", "marker COMMIT", "aborted", "marker ABORT", "open"])
see("kafka-mocha, not flushed", mocha(False), ["committed", "marker COMMIT", "marker ABORT"])
PYTHON
quietly python drive.py
