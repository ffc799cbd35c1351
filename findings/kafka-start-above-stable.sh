#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1.
#
# Seen: 1. DeleteRecords into the middle of an open transaction: the last stable offset stays at the transaction's first record,
#          below the log start offset, until the transaction ends. "Latest" at read_committed is before "earliest".
#       2. Once all its records are deleted, the open transaction still holds back what others write after it.
#       3. Retention does not wait for an open transaction: its records go, and the commit afterwards succeeds.
#
# Surprising, because readers take it as given that earliest <= latest, and because a commit that succeeds looks like a proof
# that its records were there.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 log.retention.check.interval.ms=1000 log.initial.task.delay.ms=1000
cat >start.py <<'PYTHON'
import time

from confluent_kafka import Producer, TopicPartition
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable, start, transactional
from kafka_log import batches
from seen import see, wait_for

HOUR = 3_600_000


def offsets(topic):
    return start(topic), stable(topic), high(topic)


def delete_before(topic, offset):
    for answer in ADMIN.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result()
    # Nothing is to happen any more; give it time to happen all the same.
    time.sleep(3)


create("deleted")
producer = transactional("deleted")
producer.begin_transaction()
for n in range(5):
    producer.produce("deleted", f"record {n}")
producer.flush()
delete_before("deleted", 3)
see("1. log start, last stable offset, high watermark after DeleteRecords to 3 of 5", offsets("deleted"), (3, 0, 5))
delete_before("deleted", 5)
other = Producer({"bootstrap.servers": BOOTSTRAP})
other.produce("deleted", "written after the deletion")
other.flush()
time.sleep(1)
see("2. the same after DeleteRecords to 5, and a record of another producer", offsets("deleted"), (5, 5, 6))
producer.commit_transaction()
wait_for(lambda: stable("deleted") == 7)
see("   after the commit", offsets("deleted"), (5, 7, 7))

create("expired", **{"retention.ms": "1000", "segment.ms": "1000"})
producer = transactional("expired")
producer.begin_transaction()
for n in range(5):
    producer.produce("expired", f"record {n}", timestamp=int(time.time() * 1000) - HOUR)
producer.flush()
wait_for(lambda: start("expired") == 5)
see("3. the offsets after retention, while the transaction is open", offsets("expired"), (5, 5, 5))
producer.commit_transaction()
wait_for(lambda: high("expired") == 6)
see("   batches of records after a commit without an error", [b for b in batches("expired") if not b.is_marker], [])
PYTHON
quietly python start.py
