#!/bin/bash
# Run: Airflow 3.3.2 with its provider for Kafka 2.1.0 and confluent-kafka 2.16.1, on kfake of 18 September 2026, a broker in Go. The
# operator and the trigger are called as a worker calls them, with a connection that names the broker, a group, and the reset to the
# earliest offset. Needs Go.
#
# Seen: 1. ConsumeFromTopicOperator reads ten records, and the function fails at the fourth. The task fails, and its retry succeeds
#          without a record: the group has committed all ten, though commit_cadence is "end_of_operator", or "never". Seven are lost.
#       2. With enable.auto.commit=false in the connection the retry gets all ten.
#       3. AwaitMessageTrigger takes one record in five seconds while the function finds none that matches: the sixth comes after 25 s.
#
# Surprising, because a retry is there for this, and because the warning that the operator logs speaks of a commit every five seconds: the
# consumer's close does it, at the end of the failed try, for up to 1,000 records (max_batch_size). And because poll_interval is documented
# as the time to sleep "after reaching the end of the Kafka log": behind 10,000 records that do not match, the trigger is 14 hours late.
. "$(dirname "$0")/lib/common.sh"
python_with apache-airflow==3.3.2 apache-airflow-providers-apache-kafka==2.1.0 confluent-kafka==2.16.1
kfake
export AIRFLOW_HOME=$folder/airflow
cat >functions.py <<'PYTHON'
def is_sixth(message):
    return message.value().decode() if message.value() == b"5" else None
PYTHON
cat >operators.py <<'PYTHON'
import asyncio
import json
import os
import sys
import time

import structlog
from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
from airflow.providers.apache.kafka.triggers.await_message import AwaitMessageTrigger
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_clients import BOOTSTRAP, create
from seen import see

sys.path.insert(0, os.getcwd())
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
ALL = [str(number) for number in range(10)]


def connect(group, **others):
    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", **others}
    os.environ[f"AIRFLOW_CONN_{group.upper()}"] = json.dumps({"conn_type": "kafka", "extra": settings})


def fill(topic):
    create(topic)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for value in ALL:
        producer.produce(topic, value)
    producer.flush(60)


def run(group, fails, cadence):
    """Run the operator once, and return what its function has taken, and how it ended."""
    taken = []

    def take(message):
        assert message.error() is None, message.error()
        if fails and message.value() == b"3":
            raise ConnectionError
        taken.append(message.value().decode())

    operator = ConsumeFromTopicOperator(
        task_id="task",
        topics=[group],
        kafka_config_id=group,
        apply_function=take,
        commit_cadence=cadence,
        poll_timeout=10,
    )
    try:
        operator.execute({})
    except ConnectionError:
        return taken, "failed"
    return taken, "succeeded"


def committed(group):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group})
    offset = consumer.committed([TopicPartition(group, 0)], 60)[0].offset
    consumer.close()
    return offset


for number, group, cadence, others in (
    (1, "plain", "end_of_operator", {}),
    (1, "never", "never", {}),
    (2, "manual", "end_of_operator", {"enable.auto.commit": False}),
):
    connect(group, **others)
    fill(group)
    see(f"{number}. commit_cadence {cadence}, {others}: the task", run(group, True, cadence), (["0", "1", "2"], "failed"))
    see("   committed", committed(group), -1001 if others else 10)
    see("   its retry", run(group, False, cadence), (ALL if others else [], "succeeded"))

connect("trigger")
fill("trigger")


async def first_event():
    trigger = AwaitMessageTrigger(topics=["trigger"], kafka_config_id="trigger", apply_function="functions.is_sixth")
    seconds = []
    began = time.monotonic()
    async for event in trigger.run():
        seconds.append(time.monotonic() - began)
        see("3. the trigger's event", event.payload, "5")
    await trigger.cleanup()
    print(f"   after {seconds[0]:.1f} s")
    see("   after 25 s at least", seconds[0] >= 25, True)


asyncio.run(first_event())
PYTHON
quietly python operators.py
