//go:build linux || darwin

package warden

import (
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// reportFile is the replica's stderr, where reportEnv says so.
	reportFile = 3
	// mostReports is how many lines may wait for the reader of stderr; more are dropped. lastReport is how long the end waits for them.
	mostReports, lastReport = 256, 200 * time.Millisecond
)

// report is the helper's own log, for when the replica is gone and can't tell. No reader can hold up the helper: lines that it does not take are dropped.
type report struct {
	hclog.Logger
	lines chan []byte
	done  chan struct{}
}

func openReport() *report {
	format := os.Getenv(reportEnv)
	if format == "" {
		return &report{Logger: hclog.NewNullLogger()}
	}
	unix.CloseOnExec(reportFile)
	r := &report{lines: make(chan []byte, mostReports), done: make(chan struct{})}
	r.Logger = hclog.New(&hclog.LoggerOptions{Output: r, JSONFormat: format == "json", JSONEscapeDisabled: true, TimeFormat: "2006-01-02T15:04:05.000Z07:00"})
	go func() {
		defer close(r.done)
		for line := range r.lines {
			_, _ = unix.Write(reportFile, line)
		}
	}()
	return r
}

// Write takes a line, or drops it.
func (r *report) Write(line []byte) (int, error) {
	select {
	case r.lines <- append([]byte(nil), line...):
	default:
	}
	return len(line), nil
}

// end waits for the lines that were taken, for a moment.
func (r *report) end() {
	if r.lines == nil {
		return
	}
	close(r.lines)
	select {
	case <-r.done:
	case <-time.After(lastReport):
	}
}

// isOver tells whether the process of a handle has ended.
func isOver(handle int) bool {
	fds := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
