package main

import (
	"flag"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// defineTopics creates topics of one partition.
func defineTopics(flags *flag.FlagSet) func(*load) (result, error) {
	return defineCreations(flags, "topics", func(l *load, client *kgo.Client, number int) error {
		return l.createTopic(client, fmt.Sprintf("%s-%d", l.topic, number), 1)
	})
}

// defineACLs creates ACLs for different topics.
func defineACLs(flags *flag.FlagSet) func(*load) (result, error) {
	return defineCreations(flags, "acls", func(l *load, client *kgo.Client, number int) error {
		creation := kmsg.NewCreateACLsRequestCreation()
		creation.ResourceType, creation.ResourceName = kmsg.ACLResourceTypeTopic, fmt.Sprintf("%s-%d", l.topic, number)
		creation.ResourcePatternType = kmsg.ACLResourcePatternTypeLiteral
		creation.Principal, creation.Host = "User:reader", "*"
		creation.Operation, creation.PermissionType = kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		request := kmsg.NewPtrCreateACLsRequest()
		request.Creations = append(request.Creations, creation)
		response, err := request.RequestWith(l.ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(response.Results[0].ErrorCode)
	})
}

// defineCreations makes a command that creates a number of things, each by its own request.
func defineCreations(
	flags *flag.FlagSet, what string, create func(*load, *kgo.Client, int) error,
) func(*load) (result, error) {
	count := flags.Int("count", 1000, "number of "+what+", each created by its own request")
	atOnce := flags.Int("at-once", 20, "requests at the same time")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		// The first request also connects.
		if err := create(l, client, *count); err != nil {
			return nil, err
		}
		found, err := l.measured(func() error {
			return numbered(*count, *atOnce, func(number int) error { return create(l, client, number) })
		})
		if err != nil {
			return nil, err
		}
		found[what] = *count
		return found, nil
	})
}
