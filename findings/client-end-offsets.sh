#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node), confluent-kafka 2.16.1, kafka-python 3.0.12 and aiokafka 0.14.0, each with a
# read_committed consumer, while a transaction of two records is open behind three committed ones.
#
# Seen: get_watermark_offsets() of confluent-kafka answers the last stable offset when it asks the node, and with cached=True, as
#       a running consumer is told to use it, the high watermark. Lag computed from the cached one does not become 0 while a
#       transaction is open. end_offsets() of kafka-python and aiokafka answers the last stable offset.
#
# Surprising, because one function, which differs in where it looks, answers two different things under the same name.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0
cat >ends.py <<'PYTHON'
import asyncio

import aiokafka
import kafka
from confluent_kafka import Consumer, TopicPartition
from kafka_clients import BOOTSTRAP, create, high, stable, transactional
from seen import see, wait_for

create("topic")
producer = transactional("id")
producer.begin_transaction()
for n in range(3):
    producer.produce("topic", f"committed {n}")
producer.commit_transaction()
producer.begin_transaction()
for n in range(2):
    producer.produce("topic", f"open {n}")
producer.flush()
wait_for(lambda: stable("topic") == 4)
see("last stable offset and high watermark", (stable("topic"), high("topic")), (4, 6))

consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
partition = TopicPartition("topic", 0, 0)
consumer.assign([partition])
for _ in range(3):
    wait_for(lambda: consumer.poll(1))
consumer.poll(2)
see("confluent-kafka, asked", consumer.get_watermark_offsets(partition, timeout=10)[1], 4)
see("confluent-kafka, cached", consumer.get_watermark_offsets(partition, cached=True)[1], 6)
see("its position after all committed records", consumer.position([partition])[0].offset, 4)
consumer.close()

reader = kafka.KafkaConsumer(bootstrap_servers=BOOTSTRAP, isolation_level="read_committed")
see("kafka-python", list(reader.end_offsets([kafka.TopicPartition("topic", 0)]).values()), [4])
reader.close()


async def ask():
    reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, isolation_level="read_committed")
    await reader.start()
    ends = await reader.end_offsets([aiokafka.TopicPartition("topic", 0)])
    await reader.stop()
    return list(ends.values())


see("aiokafka", asyncio.run(ask()), [4])
PYTHON
quietly python ends.py
