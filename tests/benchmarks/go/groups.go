package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	sessionTimeoutMillis = 45_000
	protocolType         = "consumer"
	protocolName         = "range"
)

func defineModernGroup(flags *flag.FlagSet) func(*load) (result, error) {
	count := flags.Int("count", 100, "number of members that join a group one after another (KIP-848)")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		// The first heartbeat also looks up the coordinator, so another group has it.
		if err := l.heartbeat(client, l.topic+"-first", 0, 0); err != nil {
			return nil, err
		}
		found, err := l.measured(func() error { return l.heartbeats(client, *count, 0) })
		if err != nil {
			return nil, err
		}
		found["members"] = *count
		// Members that stay would expire while something else is measured.
		if err := l.heartbeat(client, l.topic+"-first", 0, -1); err != nil {
			return nil, err
		}
		return found, l.heartbeats(client, *count, -1)
	})
}

// heartbeats sends one heartbeat of each member of the group, which has the name of the topic.
func (l *load) heartbeats(client *kgo.Client, count int, epoch int32) error {
	return numbered(count, 1, func(number int) error { return l.heartbeat(client, l.topic, number, epoch) })
}

// heartbeat sends a heartbeat with member epoch 0 to join, or -1 to leave.
func (l *load) heartbeat(client *kgo.Client, group string, number int, epoch int32) error {
	request := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	request.Group, request.MemberID, request.MemberEpoch = group, fmt.Sprintf("member-%d", number), epoch
	if epoch == 0 {
		request.RebalanceTimeoutMillis, request.SubscribedTopicNames = timeoutMillis, []string{l.topic}
		request.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	response, err := request.RequestWith(l.ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.ErrorCode)
}

func defineClassicGroup(flags *flag.FlagSet) func(*load) (result, error) {
	count := flags.Int("count", 100, "number of members that join a group in one rebalance, each with its own connection")
	return withClient(func(l *load, client *kgo.Client) (result, error) {
		members := make([]*member, *count)
		for i := range members {
			connection, err := net.Dial("tcp", l.brokers)
			if err != nil {
				return nil, err
			}
			defer connection.Close()
			members[i] = &member{connection: connection, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))}
		}
		// The client looks up the coordinator, and waits until it serves the group; this JoinGroup has no other effect.
		if _, err := l.join(&member{}).RequestWith(l.ctx, client); err != nil {
			return nil, err
		}
		found, err := l.measured(func() error { return l.joinTogether(members) })
		if err != nil {
			return nil, err
		}
		found["members"] = *count
		request := kmsg.NewPtrLeaveGroupRequest()
		request.Group = l.topic
		for _, each := range members {
			leaver := kmsg.NewLeaveGroupRequestMember()
			leaver.MemberID = each.id
			request.Members = append(request.Members, leaver)
		}
		response, err := request.RequestWith(l.ctx, client)
		if err != nil {
			return nil, err
		}
		return found, kerr.ErrorForCode(response.ErrorCode)
	})
}

// member is a member of a classic group; its connection is its own, because a JoinGroup delays the requests after it.
type member struct {
	connection net.Conn
	format     *kmsg.RequestFormatter
	id         string
}

// joinTogether lets the members get their ids, join in one rebalance and fetch their assignments.
func (l *load) joinTogether(members []*member) error {
	for _, each := range members {
		request := l.join(each)
		if err := each.send(request); err != nil {
			return err
		}
		response := request.ResponseKind().(*kmsg.JoinGroupResponse)
		if err := each.receive(response); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(response.ErrorCode); !errors.Is(err, kerr.MemberIDRequired) {
			return fmt.Errorf("the first JoinGroup did not just return a member id: %w", err)
		}
		each.id = response.MemberID
	}
	for _, each := range members {
		if err := each.send(l.join(each)); err != nil {
			return err
		}
	}
	syncs := make([]*kmsg.SyncGroupRequest, len(members))
	for i, each := range members {
		response := l.join(each).ResponseKind().(*kmsg.JoinGroupResponse)
		if err := each.receive(response); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
			return err
		}
		request := kmsg.NewPtrSyncGroupRequest()
		request.SetVersion(5)
		request.Group, request.MemberID, request.Generation = l.topic, each.id, response.Generation
		request.ProtocolType, request.Protocol = kmsg.StringPtr(protocolType), kmsg.StringPtr(protocolName)
		if response.LeaderID == each.id {
			if len(response.Members) != len(members) {
				return fmt.Errorf("%d of %d members joined in the first rebalance", len(response.Members), len(members))
			}
			for _, known := range response.Members {
				assignment := kmsg.NewSyncGroupRequestGroupAssignment()
				assigned := kmsg.NewConsumerMemberAssignment()
				assignment.MemberID, assignment.MemberAssignment = known.MemberID, assigned.AppendTo(nil)
				request.GroupAssignment = append(request.GroupAssignment, assignment)
			}
		}
		syncs[i] = request
	}
	for i, each := range members {
		if err := each.send(syncs[i]); err != nil {
			return err
		}
	}
	for i, each := range members {
		response := syncs[i].ResponseKind().(*kmsg.SyncGroupResponse)
		if err := each.receive(response); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) join(each *member) *kmsg.JoinGroupRequest {
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{l.topic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = protocolName, metadata.AppendTo(nil)
	request := kmsg.NewPtrJoinGroupRequest()
	request.SetVersion(7)
	request.Group, request.MemberID, request.ProtocolType = l.topic, each.id, protocolType
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = sessionTimeoutMillis, timeoutMillis
	request.Protocols = append(request.Protocols, protocol)
	return request
}

func (m *member) send(request kmsg.Request) error {
	_, err := m.connection.Write(m.format.AppendRequest(nil, request, 1))
	return err
}

func (m *member) receive(response kmsg.Response) error {
	var size [4]byte
	if _, err := io.ReadFull(m.connection, size[:]); err != nil {
		return err
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(m.connection, answer); err != nil {
		return err
	}
	// The correlation id, and in flexible versions the number of tagged fields, which is 0.
	header := 4
	if response.IsFlexible() {
		header = 5
	}
	return response.ReadFrom(answer[header:])
}
