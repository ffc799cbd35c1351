package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// connecting is how many producers get their producer ids at the same time.
const connecting = 50

func defineTransactions(flags *flag.FlagSet) func(*load) (result, error) {
	producers := flags.Int("producers", 1, "number of producers")
	total := flags.Int("total", 1000, "number of transactions, shared by the producers")
	prefix := flags.String("prefix", "load", "start of the transactional ids")
	return func(l *load) (result, error) {
		clients := make([]*kgo.Client, *producers)
		for i := range clients {
			client, err := l.client(
				kgo.DefaultProduceTopic(l.topic),
				kgo.TransactionalID(fmt.Sprintf("%s-%d", *prefix, i)),
				kgo.TransactionTimeout(5*time.Minute),
				kgo.ProducerLinger(0),
				kgo.ProducerBatchCompression(kgo.NoCompression()),
			)
			if err != nil {
				return nil, err
			}
			defer client.Close()
			clients[i] = client
		}
		// The first transaction of each producer is not counted: it looks up the coordinator and gets a producer id.
		slots := make(chan struct{}, connecting)
		err := together(clients, func(client *kgo.Client) error {
			slots <- struct{}{}
			defer func() { <-slots }()
			return l.transact(client)
		})
		if err != nil {
			return nil, err
		}
		each := *total / *producers
		found, err := l.measured(func() error {
			return together(clients, func(client *kgo.Client) error {
				for range each {
					if err := l.transact(client); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		found["transactions"] = each * *producers
		return found, nil
	}
}

// together runs the work for all clients at once and returns one of the errors.
func together(clients []*kgo.Client, work func(*kgo.Client) error) error {
	errs := make(chan error, len(clients))
	for _, client := range clients {
		go func() { errs <- work(client) }()
	}
	var failed error
	for range clients {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

// transact commits one record.
func (l *load) transact(client *kgo.Client) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(l.ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(l.ctx, kgo.TryCommit)
}
