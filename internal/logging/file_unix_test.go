//go:build unix

package logging

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A process that logs to a stderr without a reader does not end.
func TestDeadReaderEndsNoProcess(t *testing.T) {
	if os.Getenv("LOG_TO_DEAD_READER") != "" {
		log, w := New(os.Stderr, Options{Level: hclog.Info})
		log.Info("nobody reads this")
		closeWithin(t, w, 100*time.Millisecond)
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeadReaderEndsNoProcess$")
	cmd.Env = append(os.Environ(), "LOG_TO_DEAD_READER=1")
	cmd.Stderr = w
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}
