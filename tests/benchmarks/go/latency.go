package main

import (
	"encoding/binary"
	"flag"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func defineLatency(flags *flag.FlagSet) func(*load) (result, error) {
	rate := flags.Int("rate", 1000, "records a second")
	records := flags.Int("records", 10_000, "number of records that count")
	skipped := flags.Int("skipped", 1000, "number of records before those, which do not count")
	size := flags.Int("size", 100, "bytes of each record's value")
	return func(l *load) (result, error) {
		producer, err := l.client(kgo.DefaultProduceTopic(l.topic), kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		defer producer.Close()
		if err := producer.Ping(l.ctx); err != nil {
			return nil, err
		}
		consumer, err := l.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().AtStart()}}))
		if err != nil {
			return nil, err
		}
		defer consumer.Close()
		total := *skipped + *records
		taken := make([]float64, 0, total)
		found, err := l.measured(func() error {
			started := time.Now()
			failed := make(chan error, total+1)
			go func() {
				for i := range total {
					// A record's time is the one at which it should be sent, so that a slow answer counts for all it delays.
					due := time.Duration(i) * time.Second / time.Duration(*rate)
					time.Sleep(time.Until(started.Add(due)))
					value := make([]byte, *size)
					binary.BigEndian.PutUint64(value, uint64(due))
					producer.Produce(l.ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
						if err != nil {
							failed <- err
						}
					})
				}
			}()
			for len(taken) < total {
				fetches := consumer.PollFetches(l.ctx)
				now := time.Since(started)
				if err := fetches.Err0(); err != nil {
					return err
				}
				for _, each := range fetches.Errors() {
					return each.Err
				}
				fetches.EachRecord(func(record *kgo.Record) {
					due := time.Duration(binary.BigEndian.Uint64(record.Value))
					taken = append(taken, float64(now-due)/float64(time.Millisecond))
				})
				select {
				case err := <-failed:
					return err
				default:
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		counted := taken[*skipped:]
		sort.Float64s(counted)
		found["records"] = len(counted)
		found["p50_ms"], found["p99_ms"] = counted[len(counted)/2], counted[len(counted)*99/100]
		return found, nil
	}
}
