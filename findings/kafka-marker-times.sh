#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and confluent-kafka 2.16.1.
#
# Seen: markers, which no reader can read, count as records when offsets are looked up by time.
#       1. ListOffsets for the newest timestamp at read_committed answers "unknown" while a transaction is open in a new topic.
#          After the commit it answers the offset of the commit marker.
#       2. Records dated a year ago, written in transactions: the lookup of "an hour ago" answers the first marker, and a
#          reader that starts there gets all later records, a year old. The same records without transactions: no offset.
#
# Surprising, because a lookup by time promises a record of that time or later. Markers have the time of the commit.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >times.py <<'PYTHON'
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka_clients import BOOTSTRAP, create, offset, stable, transactional
from kafka_log import batches
from seen import see, wait_for

HOUR = 3_600_000
now = int(time.time() * 1000)
a_year_ago = now - 365 * 24 * HOUR

create("newest")
producer = transactional("newest")
producer.begin_transaction()
producer.produce("newest", "record")
producer.flush()
see("1. newest timestamp while the transaction is open", offset("newest", OffsetSpec.max_timestamp()), -1)
producer.commit_transaction()
wait_for(lambda: stable("newest") == 2)
newest = offset("newest", OffsetSpec.max_timestamp())
see("   offset after the commit", newest, 1)
see("   offsets of markers", [batch.first for batch in batches("newest") if batch.is_marker], [1])

create("transactions")
producer = transactional("transactions")
for n in range(3):
    producer.begin_transaction()
    producer.produce("transactions", f"record {n}", timestamp=a_year_ago + n)
    producer.commit_transaction()
create("plain")
producer = Producer({"bootstrap.servers": BOOTSTRAP})
for n in range(3):
    producer.produce("plain", f"record {n}", timestamp=a_year_ago + n)
producer.flush()
wait_for(lambda: stable("transactions") == 6)
an_hour_ago = OffsetSpec.for_timestamp(now - HOUR)
see("2. offset for an hour ago, without transactions", offset("plain", an_hour_ago), -1)
first = offset("transactions", an_hour_ago)
see("   with transactions", first, 1)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
consumer.assign([TopicPartition("transactions", 0, first)])
ages = []
for _ in range(2):
    message = wait_for(lambda: consumer.poll(1))
    ages.append((message.offset(), round((now - message.timestamp()[1]) / HOUR / 24)))
see("   a reader from there: offset and age in days", ages, [(2, 365), (4, 365)])
consumer.close()
PYTHON
quietly python times.py
