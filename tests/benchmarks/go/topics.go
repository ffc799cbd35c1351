package main

import (
	"errors"
	"flag"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const timeoutMillis = 120_000

func defineCreate(flags *flag.FlagSet) func(*load) (result, error) {
	partitions := flags.Int("partitions", 1, "number of partitions")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		return l.measured(func() error { return l.create(client, *partitions) })
	})
}

func defineDelete(*flag.FlagSet) func(*load) (result, error) {
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = &l.topic
		request := kmsg.NewPtrDeleteTopicsRequest()
		request.Topics = append(request.Topics, topic)
		request.TopicNames = append(request.TopicNames, l.topic)
		request.TimeoutMillis = timeoutMillis
		response, err := request.RequestWith(l.ctx, client)
		if err != nil {
			return nil, err
		}
		return result{}, kerr.ErrorForCode(response.Topics[0].ErrorCode)
	})
}

// create creates the topic and waits until it has leaders.
func (l *load) create(client *kgo.Client, partitions int) error {
	if err := l.createTopic(client, l.topic, partitions); err != nil {
		return err
	}
	for {
		found, err := l.describe(client)
		if err != nil {
			return err
		}
		ready := 0
		for _, partition := range found.Partitions {
			if partition.ErrorCode == 0 && partition.Leader >= 0 {
				ready++
			}
		}
		if ready == partitions {
			return nil
		}
		if l.ctx.Err() != nil {
			return errors.New("the topic got no leaders")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// createTopic sends the request for one topic.
func (l *load) createTopic(client *kgo.Client, name string, partitions int) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), timeoutMillis
	response, err := request.RequestWith(l.ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func (l *load) describe(client *kgo.Client) (*kmsg.MetadataResponseTopic, error) {
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &l.topic
	request := kmsg.NewPtrMetadataRequest()
	request.Topics, request.AllowAutoTopicCreation = append(request.Topics, topic), false
	response, err := request.RequestWith(l.ctx, client)
	if err != nil {
		return nil, err
	}
	return &response.Topics[0], nil
}
