package main

import (
	"flag"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

func defineFetch(flags *flag.FlagSet) func(*load) (result, error) {
	records := flags.Int("records", 100_000, "number of records to read")
	committed := flags.Bool("committed", false, "read at read_committed")
	return func(l *load) (result, error) {
		level := kgo.ReadUncommitted()
		if *committed {
			level = kgo.ReadCommitted()
		}
		client, err := l.client(kgo.FetchIsolationLevel(level))
		if err != nil {
			return nil, err
		}
		defer client.Close()
		topic, err := l.describe(client)
		if err != nil {
			return nil, err
		}
		starts := map[int32]kgo.Offset{}
		for _, partition := range topic.Partitions {
			starts[partition.Partition] = kgo.NewOffset().AtStart()
		}
		seen, bytes := 0, 0
		found, err := l.measured(func() error {
			client.AddConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: starts})
			for seen < *records {
				fetches := client.PollFetches(l.ctx)
				if err := fetches.Err0(); err != nil {
					return err
				}
				for _, each := range fetches.Errors() {
					return each.Err
				}
				fetches.EachRecord(func(record *kgo.Record) { seen, bytes = seen+1, bytes+len(record.Value) })
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if seen != *records {
			return nil, fmt.Errorf("%d records read, %d expected", seen, *records)
		}
		found["records"], found["bytes"] = seen, bytes
		return found, nil
	}
}
