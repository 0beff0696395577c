//go:build linux || darwin

package warden

import (
	"context"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/logging"
)

const (
	// reportFile is the descriptor of the replica's stderr. It is open if reportEnv is set.
	reportFile = 3
	// lastReport bounds the wait for queued log lines at the end of the helper.
	lastReport = 200 * time.Millisecond
)

// report is the helper's log, for actions after the replica has exited. It never blocks the helper: lines that stderr does not take are dropped.
type report struct {
	hclog.Logger
	writer *logging.Writer // nil if the helper has no log
}

func openReport() *report {
	format := os.Getenv(reportEnv)
	if format == "" {
		return &report{Logger: hclog.NewNullLogger()}
	}
	unix.CloseOnExec(reportFile)
	log, writer := logging.New(os.NewFile(reportFile, "stderr"), logging.Options{Level: hclog.Info, JSON: format == "json"})
	return &report{log, writer}
}

// closeWriter waits up to lastReport for queued lines.
func (r *report) closeWriter() {
	if r.writer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastReport)
	defer cancel()
	r.writer.Close(ctx)
}

// isOver reports whether the process of a pidfd has exited.
func isOver(handle int) bool {
	fds := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
