//go:build linux || darwin

package command

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/exhaustion"
)

// abortEvery is how often a start that hangs is looked at once it is to be killed.
const abortEvery = 20 * time.Millisecond

// unable marks an error of the way to a start that is not the command's fault, but this machine's, or of its warden.
func unable(err error) error {
	if err == nil || errors.Is(err, ErrNotStarted) || !exhaustion.Is(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// begin starts the command. Starts take turns, as they would in the runtime: a start that waits can still be abandoned, and only one start at a time
// is in the step in which its program may begin. When kill ends in that step, begin kills the forked process; the command has begun only if it was
// executed.
func (h *Host) begin(stop, kill context.Context, cmd *exec.Cmd, s *Spec, t tree) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-stop.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(stop))
	case <-kill.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(kill))
	}
	if s.Begin != nil {
		if err := s.Begin(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- start(cmd, s) }()
	select {
	case err := <-done:
		return err
	case <-kill.Done():
	}
	for {
		killUnexecuted(t)
		timer := time.NewTimer(abortEvery)
		select {
		case err := <-done:
			timer.Stop()
			return h.aborted(cmd, err)
		case <-timer.C:
		}
	}
}

// aborted returns how a start ended that was killed in progress. The runtime takes a process that dies before it has executed the command for one
// that was started.
func (h *Host) aborted(cmd *exec.Cmd, err error) error {
	if err != nil || awaitExit(cmd.Process.Pid) != nil || executed(cmd.Process.Pid) {
		return err
	}
	_ = cmd.Wait()
	return fmt.Errorf("%w: executing %s hung, and was killed", ErrNotStarted, cmd.Path)
}

// whyNotStarted returns why the command could not be started. A start that fails for want of room in the run's own limits is the run's fault, as long
// as the machine can start other processes.
func (h *Host) whyNotStarted(cmd *exec.Cmd, s *Spec, t tree, err error) error {
	if errors.Is(err, ErrNotStarted) {
		return err
	}
	why := s.startError(cmd, t, err)
	if exhaustion.Is(err) && s.Limits != (Limits{}) && h.Probe() == nil {
		return fmt.Errorf("%w: %w", ErrLimits, why)
	}
	return unable(why)
}

// Probe returns whether a command could be started now. It takes the same resources as a run, and forks a process that ends by finding nothing to
// execute.
func (h *Host) Probe() error {
	h.turn <- struct{}{} // first: while a start hangs this waits, and holds nothing
	defer func() { <-h.turn }()
	out, err := newCapture(&Spec{}, &h.buffers)
	if err != nil {
		return err
	}
	defer out.close()
	nothing := filepath.Join("/proc/self/fd", "nothing")
	_, err = syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("fork: %w", err)
}
