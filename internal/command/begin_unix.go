//go:build linux || darwin

package command

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
	// abortEvery is the interval at which a hanging start is checked after kill.
	abortEvery = 20 * time.Millisecond
	// slowStart is the time after which a start gives up its turn. It may hang, and must not keep others waiting.
	slowStart = 200 * time.Millisecond
)

// markNotStarted wraps an error on the way to a start in [ErrNotStarted] if the command is not at fault: this machine or its warden lacks something, or a
// file system does not answer.
func markNotStarted(err error) error {
	if err == nil || errors.Is(err, ErrNotStarted) || !exhaustion.Is(err) && !errors.Is(err, safefile.ErrUnanswered) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotStarted, err)
}

// startInTurn starts the command when it is its turn, because only a few starts go on at once. A start that waits for its turn can be abandoned.
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
	// busyTime and absentTime are the times for which a start waits for a program that is open for writing, or that is missing. Both programs may be
	// about to be replaced.
	busyTime, absentTime = 10 * time.Second, time.Second
	// The pauses between two starts of the same command.
	firstRetry, lastRetry = 20 * time.Millisecond, 250 * time.Millisecond
)

// startAgain starts the command, and tries again while its program seems to be replaced. After the first try it gives up its turn.
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

// startDirectly starts the command without a starter. When kill ends it kills the forked process, unless the command has been executed already.
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

// whyNotStarted returns the error of a command that could not be started. If the start failed for lack of resources, and the machine can start other
// processes, the run's own limits or the user's limit are to blame.
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

// userLimit returns the error of a user with as many processes as the kernel permits. Commands of other users still start, so the error hides EAGAIN,
// which would blame the machine.
func (s *Spec) userLimit(path string) error {
	return fmt.Errorf("start %s: %w: the user %s may have %s processes and threads (RLIMIT_NPROC of cronclave, \"LimitNPROC=\" of its service)", path, ErrUserLimit, s.User,
		processLimit())
}

// probeTime bounds a probe.
const probeTime = 10 * time.Second

// Probe returns an error if no command could be started now. It takes the same resources as a run, and starts a program that does not exist. It needs
// no turn, because hanging starts may have them all.
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
