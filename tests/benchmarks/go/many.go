package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const transactionTimeoutMillis = 600_000

func defineProducers(flags *flag.FlagSet) func(*load) (result, error) {
	count := flags.Int("count", 100_000, "number of producer ids, each with one record in one partition")
	atOnce := flags.Int("at-once", 20, "requests at the same time")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		to, err := l.target(client)
		if err != nil {
			return nil, err
		}
		partitions := len(to.topic.Partitions)
		found, err := l.measured(func() error {
			return numbered(*count/partitions, *atOnce, func(number int) error {
				batches := make([][]byte, partitions)
				for i := range batches {
					batches[i] = sealed(int64(1_000_000+number*partitions+i), 0, 0)
				}
				return to.produce(nil, batches...)
			})
		})
		if err != nil {
			return nil, err
		}
		found["producers"] = *count / partitions * partitions
		return found, nil
	})
}

func defineOpen(flags *flag.FlagSet) func(*load) (result, error) {
	count := flags.Int("count", 1000, "number of transactions that are open at the same time, in one partition")
	atOnce := flags.Int("at-once", 20, "requests at the same time")
	newest := flags.Bool("newest-first", false, "commit the newest transaction first, and not the oldest")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		to, err := l.target(client)
		if err != nil {
			return nil, err
		}
		producers := make([]*kmsg.InitProducerIDResponse, *count)
		name := func(number int) *string {
			made := fmt.Sprintf("%s-%d", l.topic, number)
			return &made
		}
		begun, err := l.measured(func() error {
			return numbered(*count, *atOnce, func(number int) error {
				request := kmsg.NewPtrInitProducerIDRequest()
				request.TransactionalID, request.TransactionTimeoutMillis = name(number), transactionTimeoutMillis
				response, err := request.RequestWith(l.ctx, client)
				if err != nil {
					return err
				}
				if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
					return err
				}
				producers[number] = response
				return to.produce(request.TransactionalID, sealed(response.ProducerID, response.ProducerEpoch, transactional))
			})
		})
		if err != nil {
			return nil, err
		}
		found, err := l.measured(func() error {
			err := numbered(*count, *atOnce, func(number int) error {
				if *newest {
					number = *count - 1 - number
				}
				request := kmsg.NewPtrEndTxnRequest()
				request.TransactionalID, request.Commit = *name(number), true
				request.ProducerID, request.ProducerEpoch = producers[number].ProducerID, producers[number].ProducerEpoch
				response, err := request.RequestWith(l.ctx, client)
				if err != nil {
					return err
				}
				return kerr.ErrorForCode(response.ErrorCode)
			})
			if err != nil {
				return err
			}
			return to.waitForLastStableOffset()
		})
		if err != nil {
			return nil, err
		}
		found["transactions"] = *count
		found["begin_seconds"], found["begin_broker_s"] = begun["seconds"], begun["broker_s"]
		return found, nil
	})
}

// waitForLastStableOffset waits until no transaction is open in the first partition.
func (t *target) waitForLastStableOffset() error {
	for t.ctx.Err() == nil {
		stable, err := t.endOffset(1)
		if err != nil {
			return err
		}
		end, err := t.endOffset(0)
		if err != nil {
			return err
		}
		if stable == end {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("a transaction stayed open")
}

// endOffset returns the last stable offset at isolation level 1, and the high watermark at 0.
func (t *target) endOffset(isolation int8) (int64, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = t.load.topic, append(topic.Partitions, partition)
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel, request.Topics = isolation, append(request.Topics, topic)
	response, err := request.RequestWith(t.ctx, t.broker)
	if err != nil {
		return 0, err
	}
	found := response.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}
