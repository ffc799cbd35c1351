#!/bin/bash
# Run: Apache Kafka 4.4.0 (one node) and three clients in Go: segmentio/kafka-go 0.4.51, IBM/sarama 1.61.1 and franz-go 1.22.3,
# each with isolation level ReadCommitted, on a topic with a committed transaction, an aborted one, another committed one, and
# one that is open. Needs Go.
#
# Seen: kafka-go returns the records of the aborted transaction, and the markers as messages of 6 bytes. It only stops at the
#       open transaction. sarama and franz-go return committed records alone.
#       The newest offset that sarama looks up is the high watermark at ReadCommitted, too, behind the open transaction.
#
# Surprising, because kafka-go documents that "only non-transactional and committed records are visible" then, and because three
# clients in Python ask for the last stable offset (client-end-offsets).
. "$(dirname "$0")/lib/common.sh"
python_with confluent-kafka==2.16.1
apache_kafka 4.4.0
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "topic"

// read prints what a client returns until nothing has come for five seconds.
func read(name string, next func(context.Context) (int64, []byte, error)) {
	fmt.Print(name, ":")
	for {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		offset, value, err := next(ctx)
		stop()
		if err != nil {
			fmt.Println()
			return
		}
		fmt.Printf(" (%d, %q)", offset, value)
	}
}

func main() {
	servers := []string{os.Getenv("BOOTSTRAP")}

	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: servers, Topic: topic, IsolationLevel: kafka.ReadCommitted})
	read("kafka-go", func(ctx context.Context) (int64, []byte, error) {
		message, err := reader.ReadMessage(ctx)
		return message.Offset, message.Value, err
	})

	config := sarama.NewConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient(servers, config)
	if err != nil {
		panic(err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		panic(err)
	}
	partition, err := consumer.ConsumePartition(topic, 0, 0)
	if err != nil {
		panic(err)
	}
	read("sarama", func(ctx context.Context) (int64, []byte, error) {
		select {
		case message := <-partition.Messages():
			return message.Offset, message.Value, nil
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	})
	newest, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		panic(err)
	}
	fmt.Println("sarama's newest offset:", newest)

	franz, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		panic(err)
	}
	var records []*kgo.Record
	read("franz-go", func(ctx context.Context) (int64, []byte, error) {
		for len(records) == 0 {
			records = franz.PollFetches(ctx).Records()
			if ctx.Err() != nil {
				return 0, nil, ctx.Err()
			}
		}
		record := records[0]
		records = records[1:]
		return record.Offset, record.Value, nil
	})
}
GO
cat >go.mod <<'GO'
module finding

go 1.26

require (
	github.com/IBM/sarama v1.61.1
	github.com/segmentio/kafka-go v0.4.51
	github.com/twmb/franz-go v1.22.3
)
GO
go mod tidy >go.log 2>&1
go build -o read . >>go.log 2>&1
cat >drive.py <<'PYTHON'
import re
import subprocess

from kafka_clients import create, high, stable, transactional
from seen import see, wait_for

create("topic")
producer = transactional("id")
for values, end in (
    (["committed"], producer.commit_transaction),
    (["aborted", "aborted too"], producer.abort_transaction),
    (["committed too"], producer.commit_transaction),
    (["open"], None),
):
    producer.begin_transaction()
    for value in values:
        producer.produce("topic", value)
    producer.flush()
    if end:
        end()
see("last stable offset and high watermark", wait_for(lambda: stable("topic") == 7) and (stable("topic"), high("topic")), (7, 8))
committed = '(0, "committed") (5, "committed too")'
read = dict(line.split(": ") for line in subprocess.check_output(["./read"], text=True).splitlines())
everything = '(0, "committed") (1, marker) (2, "aborted") (3, "aborted too") (4, marker) (5, "committed too") (6, marker)'
# A marker's value is the version and the coordinator's epoch.
see("kafka-go", re.sub(r'"\\x00\\x00(\\x[0-9a-f]{2}){4}"', "marker", read["kafka-go"]), everything)
see("sarama", read["sarama"], committed)
see("franz-go", read["franz-go"], committed)
see("sarama's newest offset", read["sarama's newest offset"], "8")
PYTHON
quietly python drive.py
