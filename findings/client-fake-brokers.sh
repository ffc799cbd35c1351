#!/bin/bash
# Run: the brokers that two client libraries bring for tests, each with its own client: the mock cluster of librdkafka 2.16.0
# (in confluent-kafka 2.16.1), and franz-go's kfake of 18 September 2026 with franz-go 1.22.3. Needs Go.
#
# Seen: a read_committed reader of librdkafka's mock cluster gets the records of aborted transactions, and of one that is open.
#       Markers take their offsets there all the same, so that the offsets look like those of a real topic. kfake hides these
#       records, and gives each transaction an epoch of its own (version 2, KIP-890), as Apache Kafka does since 4.0.
#
# Surprising, because the mock cluster answers every request of a transaction, and because a fake was not expected to know
# KIP-890: a test of exactly once can pass on the one and mean nothing, and mean something on the other.
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
cat >mock.py <<'PYTHON'
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from seen import see

producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "transactional.id": "id"})
producer.init_transactions(60)
broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
for value, end in (
    ("committed", producer.commit_transaction),
    ("aborted", producer.abort_transaction),
    ("committed too", producer.commit_transaction),
    ("open", None),
):
    producer.begin_transaction()
    producer.produce("topic", value, partition=0)
    producer.flush(30)
    if end:
        end(30)
settings = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "reader"}
consumer = Consumer(settings | {"isolation.level": "read_committed"})
consumer.assign([TopicPartition("topic", 0, 0)])
read = []
until = time.monotonic() + 60
while len(read) < 4 and time.monotonic() < until:
    message = consumer.poll(1)
    if message is not None and not message.error():
        read.append((message.offset(), message.value().decode()))
consumer.close()
see("librdkafka's mock cluster, read_committed", read, [(0, "committed"), (2, "aborted"), (4, "committed too"), (6, "open")])
PYTHON
quietly python mock.py
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "topic"))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	servers := kgo.SeedBrokers(cluster.ListenAddrs()...)
	producer, err := kgo.NewClient(servers, kgo.TransactionalID("id"), kgo.DefaultProduceTopic("topic"))
	if err != nil {
		panic(err)
	}
	for number, value := range []string{"committed", "aborted", "committed too", "open"} {
		if err := producer.BeginTransaction(); err != nil {
			panic(err)
		}
		if err := producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			panic(err)
		}
		if value == "open" {
			break
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(number != 1)); err != nil {
			panic(err)
		}
	}
	reader, err := kgo.NewClient(servers, kgo.ConsumeTopics("topic"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		panic(err)
	}
	short, over := context.WithTimeout(ctx, 5*time.Second)
	defer over()
	for short.Err() == nil {
		reader.PollFetches(short).EachRecord(func(record *kgo.Record) {
			fmt.Printf("(%d, '%s', epoch %d)\n", record.Offset, record.Value, record.ProducerEpoch)
		})
	}
}
GO
cat >go.mod <<'GO'
module finding

go 1.24

require (
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kfake v0.0.0-20260918054303-01f206a7e32c
)
GO
go mod tidy >go.log 2>&1
quietly go run . >read.txt
echo "kfake, read_committed:" && cat read.txt
diff <(printf '%s\n' "(0, 'committed', epoch 0)" "(4, 'committed too', epoch 2)") read.txt
