#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1. A producer with a transactional id commits three records, the node is
# stopped, and the files of __transaction_state are copied. A second producer of this id commits three more. The node is stopped again,
# and its __transaction_state is the copy from then on, as after a restored disk or an unclean election. A third producer commits three
# records, and a fourth one too.
#
# Seen: 1. The third producer gets no error: each record is acknowledged, with an offset of the second producer's, and the commit returns.
#       2. None of its records is in the topic. Those of the fourth one are.
#
# Surprising, because acks=all, idempotence and a commit that returns are to exclude just that, and because brokers of transaction.version=2
# are to know old epochs. InitProducerId gives the third producer the second one's epoch, so that its batch, from sequence 0 on, is a
# duplicate for the leader, which acknowledges it and writes nothing. The client is one of transactions V1.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
controller=$(sed -n 's/^controller.quorum.bootstrap.servers=//p' common.properties)
cat >commit.py <<'PYTHON'
import sys

from kafka_clients import ADMIN, COMMITTED, create, transactional

name = sys.argv[1]
if name == "first":
    create("orders")
producer, offsets = transactional("app"), []
producer.begin_transaction()
for number in range(3):
    producer.produce("orders", f"{name} {number}", on_delivery=lambda error, record: offsets.append(error or record.offset()))
producer.flush(60)
producer.commit_transaction(60)
print(name, offsets)
PYTHON
cat >read.py <<'PYTHON'
from confluent_kafka import Consumer, TopicPartition
from kafka_clients import BOOTSTRAP, high
from seen import see

settings = {"bootstrap.servers": BOOTSTRAP, "group.id": "g", "isolation.level": "read_committed", "enable.partition.eof": True}
consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
consumer.assign([TopicPartition("orders", 0, 0)])
found = []
while (record := consumer.poll(60)) is not None and not record.error():
    found.append(record.value().decode())
consumer.close()
lines = [line.strip() for line in open("commits")]
see("1. offsets of acknowledged records", "; ".join(lines), "first [0, 1, 2]; second [4, 5, 6]; third [4, 5, 6]; fourth [9, 10, 11]")
see("2. read", found, [f"{name} {number}" for name in ("first", "second", "fourth") for number in range(3)])
PYTHON
restart() {
    kill -TERM "${nodes[0]}" && wait "${nodes[0]}" || true
    nodes=()
    "$@"
    start_node 1 broker,controller "${BOOTSTRAP#*:}" ",CONTROLLER://$controller" --standalone --ignore-formatted
}
state=data/__transaction_state-0
quietly python commit.py first >>commits
restart cp -r "$state" saved
quietly python commit.py second >>commits
restored() { rm -r "$state" && cp -r saved "$state"; }
restart restored
quietly python commit.py third >>commits
quietly python commit.py fourth >>commits
quietly python read.py
