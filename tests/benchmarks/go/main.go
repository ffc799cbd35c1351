// The load generator of the broker's benchmarks: each call is one measurement, printed as one line of JSON.
//
// The client is franz-go. Every subcommand takes -brokers, and -pid, the process of the broker: what that process
// spends on the measured part, and not on what prepares it, is in the result as broker_s.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// deadline ends a measurement that a broker does not answer.
const deadline = 5 * time.Minute

type result map[string]any

// load is what every subcommand knows of the broker that it measures.
type load struct {
	ctx     context.Context
	brokers string
	pid     int
	topic   string
}

// commands define their options and return what runs them.
var commands = map[string]func(*flag.FlagSet) func(*load) (result, error){
	"create":       defineCreate,
	"delete":       defineDelete,
	"produce":      defineProduce,
	"fetch":        defineFetch,
	"transactions": defineTransactions,
	"latency":      defineLatency,
	"producers":    defineProducers,
	"open":         defineOpen,
	"connections":  defineConnections,
	"modern":       defineModernGroup,
	"classic":      defineClassicGroup,
	"topics":       defineTopics,
	"acls":         defineACLs,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		names := make([]string, 0, len(commands))
		for name := range commands {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: load COMMAND [OPTIONS]; the commands are:", names)
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	l := &load{}
	flags.StringVar(&l.brokers, "brokers", "127.0.0.1:9092", "address of a broker")
	flags.IntVar(&l.pid, "pid", 0, "process of the broker, 0 to leave its processor time out")
	flags.StringVar(&l.topic, "topic", "load", "the topic")
	run := commands[os.Args[1]](flags)
	_ = flags.Parse(os.Args[2:])
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	l.ctx = ctx
	found, err := run(l)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
}

// client makes a client of the broker with further options.
func (l *load) client(options ...kgo.Opt) (*kgo.Client, error) {
	always := []kgo.Opt{kgo.SeedBrokers(l.brokers), kgo.DisableClientMetrics()}
	return kgo.NewClient(append(always, options...)...)
}

// withClient makes a command of work with one client.
func withClient(work func(*load, *kgo.Client) (result, error)) func(*load) (result, error) {
	return func(l *load) (result, error) {
		client, err := l.client()
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return work(l, client)
	}
}
