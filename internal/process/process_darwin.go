package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// cells creates the trees of runs. On macOS they are process groups.
type cells struct{}

func newCells(hclog.Logger) *cells { return &cells{} }

func (*cells) describe() string     { return "process groups (macOS has no cgroups)" }
func (*cells) cgroupDirs() []string { return nil }
func (*cells) close() error         { return nil }

func (c *cells) newTree(s *Spec) (tree, error) {
	if s.Limits != (Limits{}) {
		return nil, c.allowLimits(s.Limits)
	}
	return group{}, nil
}

func (*cells) allowLimits(Limits) error {
	return fmt.Errorf("%w: they take a cgroup, which only Linux has", ErrLimits)
}

// startsAtOnce is the number of starts that may run at the same time: 1, because the Go runtime forks one process at a time.
const startsAtOnce = 1

// startOnce starts the command. On macOS umask and priority belong to the whole process, so a shell sets them for the command. This shell runs as the
// command's user, so it can raise the priority only if that user is root.
func (*Host) startOnce(kill context.Context, cmd *exec.Cmd, s *Spec, t tree) (*os.Process, error) {
	if s.Umask != nil {
		maskThroughShell(cmd, *s.Umask)
	}
	if s.Nice != nil {
		if err := checkNice(*s.Nice); err != nil {
			return nil, err
		}
		throughShell(cmd, `/usr/bin/renice "$0" $$ >/dev/null`, strconv.Itoa(*s.Nice))
	}
	return startDirectly(kill, cmd, t)
}

func (*Host) reapCommand(p *os.Process) (*os.ProcessState, error) { return p.Wait() }

// removeTime bounds the wait for hanging starts when the host is closed.
const removeTime = time.Second

func checkNice(n int) error {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && n < own && os.Geteuid() != 0 {
		err = unix.EACCES
	}
	if err != nil {
		return niceError(n, err)
	}
	return nil
}

// awaitExit blocks until the child is dead, without reaping it. On macOS waitid would also return for a child that is stopped (golang/go#19314).
func awaitExit(pid int) error {
	queue, err := unix.Kqueue()
	if err != nil {
		return fmt.Errorf("watch the command: %w", err)
	}
	defer unix.Close(queue)
	exit := make([]unix.Kevent_t, 1)
	unix.SetKevent(&exit[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	exit[0].Fflags = unix.NOTE_EXIT
	for {
		_, err := unix.Kevent(queue, exit, make([]unix.Kevent_t, 1), nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil && !errors.Is(err, unix.ESRCH): // ESRCH: the child is dead already
			return fmt.Errorf("watch the command: %w", err)
		}
		return nil
	}
}

func groupLives(id int) bool { return len(groupPrograms(id)) > 0 }

func groupPrograms(id int) map[int]string {
	const zombie = 5 // SZOMB of <sys/proc.h>
	programs := map[int]string{}
	members, _ := unix.SysctlKinfoProcSlice("kern.proc.pgrp", id) // no members if the group is gone
	for _, m := range members {
		if m.Proc.P_stat != zombie {
			programs[int(m.Proc.P_pid)] = unix.ByteSliceToString(m.Proc.P_comm[:])
		}
	}
	return programs
}

// programsOf returns nil: processes that left their group are not found on macOS.
func programsOf([]int) map[int]string { return nil }

// oomCounter does nothing: macOS does not count the processes that it kills for memory.
type oomCounter struct{}

func newOOMCounter() oomCounter { return oomCounter{} }

func (oomCounter) killCount() int64 { return 0 }

// hasExecuted returns true, because macOS does not show whether a process has executed its program.
func hasExecuted(int) bool { return true }

// killUnexecuted does nothing, because on macOS hasExecuted does not find the children that have not executed their program.
func killUnexecuted(int, tree) (hung int) { return 0 }

// watchStops does nothing, because on macOS a wait for a stop would also reap the command. So Ctrl-Z stops only the command.
func (*terminal) watchStops(int) {}

// markAll returns an error: macOS has no system call that sets the close-on-exec flag of all files.
func markAll() error { return errors.ErrUnsupported }
