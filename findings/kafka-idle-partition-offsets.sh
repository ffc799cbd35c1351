#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node, which keeps offsets for a minute instead of a week) and confluent-kafka 2.16.1. Five groups
# commit an offset of each of two partitions once, then that of partition 0 again and again.
#
# Seen: 1. After the retention the offset of partition 1 is gone, though the group commits all the time: if its offsets are
#          committed from outside, or in transactions, or by a consumer that is alive and polls, but has assigned its partitions.
#       2. It stays if the group has a member that is subscribed, with the classic protocol as with the new one.
#
# Surprising, because the retention is described as one of inactive groups. A partition without news for a week is forgotten
# alone, and a reader then starts it anew: at its end or at its beginning.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0 offsets.retention.minutes=1 offsets.retention.check.interval.ms=1000
cat >retention.py <<'PYTHON'
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka_clients import ADMIN, BOOTSTRAP, transactional
from seen import see, wait_for

for answer in ADMIN.create_topics([NewTopic("topic", 2, 1)]).values():
    answer.result()


def offsets(*numbers):
    return [TopicPartition("topic", partition, number) for partition, number in enumerate(numbers)]


def consumer(group, **settings):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, "enable.auto.commit": False, **settings})


def commits_of(reader):
    return lambda *numbers: reader.commit(offsets=offsets(*numbers), asynchronous=False)


def commit_in_transaction(*numbers):
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets(*numbers), outside.consumer_group_metadata())
    producer.commit_transaction()


def kept(group):
    answer = next(iter(ADMIN.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values())).result()
    return sorted(each.partition for each in answer.topic_partitions if each.offset >= 0)


producer = transactional("id")
outside = consumer("in transactions")
assigned = consumer("assigned")
assigned.assign(offsets(0, 0))
classic = consumer("subscribed, classic protocol")
new = consumer("subscribed, new protocol", **{"group.protocol": "consumer"})
for member in (classic, new):
    member.subscribe(["topic"])
    wait_for(lambda: member.poll(0.1) or len(member.assignment()) == 2)
groups = {
    "from outside": commits_of(consumer("from outside")),
    "in transactions": commit_in_transaction,
    "assigned": commits_of(assigned),
    "subscribed, classic protocol": commits_of(classic),
    "subscribed, new protocol": commits_of(new),
}
for commit in groups.values():
    commit(1, 1)
both = [[0, 1]] * len(groups)
see("both offsets at first", wait_for(lambda: [kept(group) for group in groups] == both, 20), True)
until = time.monotonic() + 90
while time.monotonic() < until:
    for commit in groups.values():
        commit(2)
    for member in (assigned, classic, new):
        member.poll(0.5)
for group in groups:
    see(group, kept(group), [0, 1] if group.startswith("subscribed") else [0])
PYTHON
quietly python retention.py
