package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func defineConnections(flags *flag.FlagSet) func(*load) (result, error) {
	count := flags.Int("count", 1000, "number of connections")
	return func(l *load) (result, error) {
		formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))
		request := kmsg.NewPtrApiVersionsRequest()
		request.SetVersion(3)
		request.ClientSoftwareName, request.ClientSoftwareVersion = "load", "1"
		sent := formatter.AppendRequest(nil, request, 1)
		open := make([]net.Conn, *count)
		found, err := l.measured(func() error {
			for i := range open {
				connection, err := net.Dial("tcp", l.brokers)
				if err != nil {
					return err
				}
				open[i] = connection
				if _, err := connection.Write(sent); err != nil {
					return err
				}
				var size [4]byte
				if _, err := io.ReadFull(connection, size[:]); err != nil {
					return err
				}
				if _, err := io.CopyN(io.Discard, connection, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		// The caller looks at the broker's memory and then ends the line.
		fmt.Fprintln(os.Stderr, "open")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		for _, connection := range open {
			_ = connection.Close()
		}
		found["connections"] = *count
		return found, nil
	}
}
