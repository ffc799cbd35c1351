package main

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// processorTime returns the processor time that all threads of a process have used, those that ended included.
func processorTime(pid int) (time.Duration, error) {
	// The number of the clock that clock_getcpuclockid(3) returns. /proc/PID/stat has the same in units of 10 ms.
	const scheduled = 2
	clock := ^pid<<3 | scheduled
	var read syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&read)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, errno)
	}
	return time.Duration(read.Nano()), nil
}

// measured runs the work and returns how long it took, and how much processor time the broker used for it.
func (l *load) measured(work func() error) (result, error) {
	var before time.Duration
	var err error
	if l.pid != 0 {
		if before, err = processorTime(l.pid); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	if err := work(); err != nil {
		return nil, err
	}
	found := result{"seconds": time.Since(started).Seconds()}
	if l.pid != 0 {
		after, err := processorTime(l.pid)
		if err != nil {
			return nil, err
		}
		found["broker_s"] = (after - before).Seconds()
	}
	return found, nil
}
