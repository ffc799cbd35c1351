package main

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// This file sends single requests, for measurements that need more producers than one process can have clients.

const (
	transactional = 1 << 4
	// oneRecord is a record with the value "x", without a key and headers, after the length that stands before it.
	oneRecord = "\x0e\x00\x00\x00\x01\x02x\x00"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed returns a record batch of one record, the producer's first.
func sealed(producerID int64, epoch int16, attributes int16) []byte {
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, Attributes: attributes, FirstTimestamp: now, MaxTimestamp: now, PartitionLeaderEpoch: -1,
		ProducerID: producerID, ProducerEpoch: epoch, NumRecords: 1, Records: []byte(oneRecord),
	}
	data := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-12))
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], castagnoli))
	return data
}

// target is a topic whose partitions all have the same leader.
type target struct {
	*load
	topic  *kmsg.MetadataResponseTopic
	broker *kgo.Broker
}

func (l *load) target(client *kgo.Client) (*target, error) {
	topic, err := l.describe(client)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return nil, err
	}
	return &target{l, topic, client.Broker(int(topic.Partitions[0].Leader))}, nil
}

// produce sends the batches to the first partitions, one to each, in one request.
func (t *target) produce(transactionalID *string, batches ...[]byte) error {
	for {
		// A new partition has a leader before that broker knows that it leads. Batches that were taken are not repeated:
		// their sequence numbers are known.
		err := t.tryProduce(transactionalID, batches)
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (t *target) tryProduce(transactionalID *string, batches [][]byte) error {
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = t.load.topic, t.topic.TopicID
	for i, batch := range batches {
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition, partition.Records = int32(i), batch
		topic.Partitions = append(topic.Partitions, partition)
	}
	request := kmsg.NewPtrProduceRequest()
	request.TransactionID, request.Acks, request.TimeoutMillis = transactionalID, -1, timeoutMillis
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(t.ctx, t.broker)
	if err != nil {
		return err
	}
	for _, partition := range response.Topics[0].Partitions {
		if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// numbered calls the work with the numbers from 0 to count-1, in that order, a number of them at the same time.
func numbered(count, atOnce int, work func(int) error) error {
	numbers := make(chan int)
	var workers sync.WaitGroup
	var once sync.Once
	var failed error
	for range atOnce {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := range numbers {
				if err := work(number); err != nil {
					once.Do(func() { failed = err })
				}
			}
		}()
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	return failed
}
