//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/exhaustion"
	"github.com/cronclave/cronclave/internal/safefile"
)

const (
	// abortEvery is the interval at which a hanging start is checked after its context kill has ended.
	abortEvery = 20 * time.Millisecond
	// slowStart is the time after which a start gives up its turn, because it may hang and must not block other starts.
	slowStart = 200 * time.Millisecond
)

// markNotStarted wraps the error of a start in [ErrNotStarted] if the command is not at fault: the machine or the warden lacks a resource, or a file system
// does not answer.
func markNotStarted(err error) error {
	if err == nil || errors.Is(err, ErrNotStarted) || !exhaustion.Is(err) && !errors.Is(err, safefile.ErrUnanswered) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// startInTurn waits for its turn, because few starts may run at the same time, and then starts the command. If stop or kill ends, it stops waiting.
func (h *Host) startInTurn(stop, kill context.Context, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	if h.stuck.has(startKey(cmd)) {
		return nil, hangError(cmd, "still hangs since an earlier start")
	}
	if err := h.awaitTurn(stop, kill); err != nil {
		return nil, err
	}
	next := sync.OnceFunc(func() { <-h.turns })
	defer next()
	defer time.AfterFunc(slowStart, next).Stop()
	if s.Begin != nil {
		if err := s.Begin(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
	return h.startAgain(kill, cmd, s, t, next)
}

func (h *Host) awaitTurn(stop, kill context.Context) error {
	select {
	case h.turns <- struct{}{}:
		return nil
	case <-stop.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(stop))
	case <-kill.Done():
		return fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(kill))
	}
}

const (
	// busyTime is the time for which a start retries a program that is open for writing. absentTime is the time for which it retries a missing program. Such
	// a program may being replaced.
	busyTime, absentTime = 10 * time.Second, time.Second
	// The shortest and the longest pause between two attempts to start the same command.
	firstRetry, lastRetry = 20 * time.Millisecond, 250 * time.Millisecond
)

// startAgain starts the command, and retries while its program seems to be in the middle of being replaced. It gives up its turn after the first failed
// attempt.
func (h *Host) startAgain(kill context.Context, cmd *exec.Cmd, s *Spec, t tree, next func()) (*os.Process, error) {
	pause := backoff.New(firstRetry, lastRetry)
	for since := time.Now(); ; {
		p, err := h.startOnce(kill, cmd, s, t)
		passed := time.Since(since)
		again := errors.Is(err, syscall.ETXTBSY) && passed < busyTime || errors.Is(err, syscall.ENOENT) && passed < absentTime && t.missingPart() == nil
		if !again || s.Attached || !pause.Wait(kill) {
			return p, err
		}
		next()
	}
}

// startDirectly starts the command without a starter. If the context kill ends first, it kills the forked process, unless that process has executed the
// command.
func startDirectly(kill context.Context, cmd *exec.Cmd, t tree) (*os.Process, error) {
	done := make(chan error, 1)
	go func() { done <- cmd.Start() }()
	select {
	case err := <-done:
		return cmd.Process, err
	case <-kill.Done():
	}
	for {
		killUnexecuted(os.Getpid(), t)
		timer := time.NewTimer(abortEvery)
		select {
		case err := <-done:
			timer.Stop()
			if err == nil && !hasExecuted(cmd.Process.Pid) && awaitExit(cmd.Process.Pid) == nil && !hasExecuted(cmd.Process.Pid) {
				_ = cmd.Wait()
				return nil, hangError(cmd, "hung, and was killed")
			}
			return cmd.Process, err
		case <-timer.C:
		}
	}
}

// whyNotStarted returns the error of a command that could not be started. If a resource was missing but the machine can start other processes, it blames the
// limits of the run or of the user.
func (h *Host) whyNotStarted(cmd *exec.Cmd, s *Spec, t tree, err error) error {
	if errors.Is(err, ErrNotStarted) {
		return err
	}
	why := s.startError(cmd, t, err)
	if errors.Is(err, syscall.ETXTBSY) {
		return fmt.Errorf("%w: %w", ErrNotStarted, why)
	}
	if exhaustion.Is(err) && s.Limits != (Limits{}) && h.Probe() == nil {
		return fmt.Errorf("%w: %w", ErrLimits, why)
	}
	if errors.Is(err, syscall.EAGAIN) && cmd.SysProcAttr.Credential != nil && h.Probe() == nil {
		return s.userLimit(cmd.Path)
	}
	return markNotStarted(why)
}

// userLimit returns the error for a user who already has as many processes as the kernel permits. It does not wrap EAGAIN, which callers take for a shortage
// of the machine, because commands of other users still start.
func (s *Spec) userLimit(path string) error {
	return fmt.Errorf("start %s: %w: the user %s may have %s processes and threads (RLIMIT_NPROC of cronclave, \"LimitNPROC=\" of its service)", path, ErrUserLimit, s.User,
		processLimit())
}

// probeTime is the time limit of a probe.
const probeTime = 10 * time.Second

// Probe returns an error if no command could be started now. It takes the same resources as a run and executes a program that does not exist. It does not
// wait for its turn, because hanging starts may hold all turns.
func (h *Host) Probe() error {
	late, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	out, err := newCapture(&Spec{}, &h.buffers)
	if err != nil {
		return err
	}
	defer out.close()
	nothing := filepath.Join("/proc/self/fd", "nothing")
	cmd := &exec.Cmd{Path: nothing, Args: []string{nothing}, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{}}
	out.attach(cmd)
	_, err = h.startOnce(late, cmd, &Spec{}, group{})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("start a program: %w", err)
}
