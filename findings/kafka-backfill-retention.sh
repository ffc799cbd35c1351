#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node, which looks for old segments each second) and confluent-kafka 2.16.1. New topics with retention.ms
# of seven days, and records dated 30 days ago, as a copy of old rows writes them; four times three records.
#
# Seen: 1. Without transactions all of them are deleted.
#       2. In four transactions the records of the first one are deleted, and those of the other three stay: committed or aborted.
#       3. The same, if a transaction with a record of today was there before: all of them stay.
#
# Surprising, because records of one age, with one setting, have one fate each. A segment is closed when a record comes that is seven
# days (segment.ms) newer than its first one. The first marker, which has the time of the commit, is such a record: it begins a new
# segment, without the records that it commits. That segment, and with it all that follow, is as young as its markers.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 log.retention.check.interval.ms=1000 log.initial.task.delay.ms=500
cat >backfill.py <<'PYTHON'
import time

from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, stable, start, transactional
from kafka_log import batches
from seen import see, wait_for

DAY = 86_400_000
now = int(time.time() * 1000)


def write(producer, topic, days):
    """Write three records that are so many days old, and wait for the answers."""
    for n in range(3):
        producer.produce(topic, f"{days} days, {n}", partition=0, timestamp=now - days * DAY)
    see(f"   records without an answer, {topic}", producer.flush(60), 0)


def plain(topic):
    """Write four times three old records."""
    create(topic)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for _ in range(4):
        write(producer, topic, 30)


def transactions(topic, days, end):
    """Write three records of each age, each in a transaction."""
    create(topic)
    producer = transactional(topic)
    for age in days:
        producer.begin_transaction()
        write(producer, topic, age)
        getattr(producer, end)(60)
    wait_for(lambda: stable(topic) == 4 * len(days))


def wait_for_a_round(name):
    """Return when the node has looked at all topics once more: it has deleted a new one's old records."""
    plain(name)
    wait_for(lambda: start(name) == 12)
    see(f"   first offset of {name}", start(name), 12)


transactions("committed", [30] * 4, "commit_transaction")
transactions("aborted", [30] * 4, "abort_transaction")
transactions("after-today", [0] + [30] * 3, "commit_transaction")
wait_for(lambda: start("committed") and start("aborted"))
wait_for_a_round("plain")
wait_for_a_round("plain-again")
see("1. first and last offset without transactions", (start("plain"), stable("plain")), (12, 12))
see("2. with four transactions", (start("committed"), stable("committed")), (3, 16))
see("   offsets of markers", [batch.first for batch in batches("committed") if batch.is_marker], [3, 7, 11, 15])
see("   all aborted", (start("aborted"), stable("aborted")), (3, 16))
see("3. after a transaction of today", (start("after-today"), stable("after-today")), (0, 16))
PYTHON
quietly python backfill.py
