package replica

import (
	"errors"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/scheduler"
)

// A run that the warden has ended was lost with its lease, whatever the command's own end was, and also if the command could not even be started.
func TestResultOfALateRun(t *testing.T) {
	r := &commandRunner{job: &config.Job{Program: config.Program{OKExitCodes: []int{0}}}}
	for _, exit := range []process.Exit{{Code: 0}, {Code: 3}, {Code: -1, Signal: "SIGKILL"}, {Code: -1, Err: process.ErrNotExecutable}} {
		if own := r.resultOf(exit); errors.Is(own.Err, scheduler.ErrLost) {
			t.Errorf("%+v, in time: %v", exit, own.Err)
		}
		exit.Late = true
		if late := r.resultOf(exit); !errors.Is(late.Err, scheduler.ErrLost) {
			t.Errorf("%+v: %v", exit, late.Err)
		}
	}
}
