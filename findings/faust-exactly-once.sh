#!/bin/bash
# Run: faust-streaming 0.15.3 (with aiokafka 0.14.0) and Apache Kafka 4.4.0 (one node). An app with
# processing_guarantee="exactly_once" reads five records and sends each on to two topics: "output", which only others read, and
# "further", which another agent of the app reads.
#
# Seen: records for "output" are in no transaction, with a key and a partition as well as without. Those for "further" are in
#       transactions, together with the offsets of the group.
#       The worker is killed before it commits, and started again: a read_committed reader of "output" gets all records twice,
#       one of "further" gets them once.
#
# Surprising, because the guarantee is one setting of the app. The partition that names a transaction is looked up in the
# metadata of the app's consumer, which has only the topics that the app reads.
. "$(dirname "$0")/lib/common.sh"
python_with faust-streaming==0.15.3 aiokafka==0.14.0 confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >app.py <<'PYTHON'
import asyncio
import os
import signal

import faust

app = faust.App(
    "app",
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    processing_guarantee="exactly_once",
    topic_partitions=1,
    store="memory://",
    broker_commit_interval=5.0,
    broker_session_timeout=10.0,
    broker_heartbeat_interval=2.0,
)
output = app.topic("output", value_type=str)
further = app.topic("further", value_type=str)


@app.agent(app.topic("input", value_type=str))
async def copy(stream):
    async for value in stream:
        await output.send(value=value)
        await output.send(key=value, value=f"{value} by key")
        await output.send(partition=0, value=f"{value} by partition")
        await further.send(value=value)
        if value == "five" and "KILL" in os.environ:
            await asyncio.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)


@app.agent(further)
async def take(stream):
    async for _ in stream:
        pass


app.main()
PYTHON
cat >drive.py <<'PYTHON'
import os
import subprocess
import sys
from collections import Counter

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable
from kafka_log import batches
from seen import see, wait_for

VALUES = ["one", "two", "three", "four", "five"]


def committed():
    group = ConsumerGroupTopicPartitions("app", [TopicPartition("input", 0)])
    answer = next(iter(ADMIN.list_consumer_group_offsets([group]).values())).result()
    return answer.topic_partitions[0].offset


def worker(**environment):
    log = open("worker.log", "a")
    return subprocess.Popen(
        [sys.executable, "app.py", "worker", "--without-web"], env=os.environ | environment, stdout=log, stderr=log
    )


def read(topic):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = Counter()
    while consumer.position([TopicPartition(topic, 0)])[0].offset < stable(topic):
        message = consumer.poll(1)
        if message is not None:
            found[message.value().decode().strip('"')] += 1
    consumer.close()
    return dict(found)


for topic in ("input", "output", "further"):
    create(topic)
producer = Producer({"bootstrap.servers": BOOTSTRAP})
for value in VALUES:
    producer.produce("input", f'"{value}"')
producer.flush()
see("the killed worker's status", worker(KILL="yes").wait(120), -9)
see("offset of the group", committed(), -1001)
see('readable of "output" and of "further"', (stable("output"), stable("further")), (15, 0))
second = worker()
see("offset of the group after the second worker", wait_for(lambda: committed() == 5) and committed(), 5)
wait_for(lambda: stable("further") == high("further"))
second.terminate()
second.wait(120)
copies = {"output": 2, "further": 1}
for topic, times in copies.items():
    found = read(topic)
    see(f'copies in "{topic}", read_committed', sorted(set(found.values())), [times])
    see("  of values", len(found), {"output": 15, "further": 5}[topic])
see('batches of "output" in transactions', sum(batch.is_transactional for batch in batches("output")), 0)
see('batches of "further" outside', sum(not batch.is_transactional for batch in batches("further")), 0)
PYTHON
quietly python drive.py
