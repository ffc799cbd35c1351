package main

import (
	"flag"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// distinctValues is how many values a producer sends in turn, so that a batch does not repeat one of them.
const distinctValues = 1000

// values returns texts of words from a small vocabulary, which lz4 makes about half as large. Each run has the same.
func values(size int) [][]byte {
	chance := rand.New(rand.NewSource(1))
	vocabulary := make([][]byte, 2000)
	for i := range vocabulary {
		vocabulary[i] = fmt.Appendf(nil, "%x ", chance.Int63n(1<<(8+4*(i%8))))
	}
	made := make([][]byte, distinctValues)
	for i := range made {
		for len(made[i]) < size {
			made[i] = append(made[i], vocabulary[chance.Intn(len(vocabulary))]...)
		}
		made[i] = made[i][:size]
	}
	return made
}

func compression(name string) kgo.CompressionCodec {
	if name == "lz4" {
		return kgo.Lz4Compression()
	}
	return kgo.NoCompression()
}

func defineProduce(flags *flag.FlagSet) func(*load) (result, error) {
	size := flags.Int("size", 1000, "bytes of each record's value")
	records := flags.Int("records", 100_000, "number of records")
	codec := flags.String("compression", "none", "none or lz4")
	plain := flags.Bool("plain", false, "produce without a producer id")
	perTransaction := flags.Int("transaction-records", 0, "records of each transaction, 0 for none")
	abortEvery := flags.Int("abort-every", 0, "abort each transaction with a multiple of this number")
	return func(l *load) (result, error) {
		options := []kgo.Opt{
			kgo.DefaultProduceTopic(l.topic),
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerBatchCompression(compression(*codec)),
			kgo.ProducerLinger(5 * time.Millisecond),
			kgo.MaxBufferedRecords(50_000),
		}
		if *plain {
			// As many as an idempotent producer has.
			options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
		}
		if *perTransaction > 0 {
			options = append(options, kgo.TransactionalID(l.topic))
		}
		client, err := l.client(options...)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		if err := client.Ping(l.ctx); err != nil {
			return nil, err
		}
		made := values(*size)
		committed := *records
		found, err := l.measured(func() error {
			if *perTransaction == 0 {
				return l.send(client, made, 0, *records)
			}
			for first, number := 0, 1; first < *records; first, number = first+*perTransaction, number+1 {
				if err := client.BeginTransaction(); err != nil {
					return err
				}
				count := min(*perTransaction, *records-first)
				if err := l.send(client, made, first, count); err != nil {
					return err
				}
				end := kgo.TryCommit
				if *abortEvery > 0 && number%*abortEvery == 0 {
					end, committed = kgo.TryAbort, committed-count
				}
				if err := client.EndTransaction(l.ctx, end); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		found["records"], found["committed"], found["bytes"] = *records, committed, *records**size
		return found, nil
	}
}

// send produces records and waits until all are acknowledged.
func (l *load) send(client *kgo.Client, made [][]byte, first, count int) error {
	var once sync.Once
	var failed error
	for i := first; i < first+count; i++ {
		client.Produce(l.ctx, &kgo.Record{Value: made[i%len(made)]}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	if err := client.Flush(l.ctx); err != nil {
		return err
	}
	return failed
}
