package command

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// cells makes the tree of each run: on macOS a process group, nothing else.
type cells struct{}

func newCells(hclog.Logger) *cells { return &cells{} }

func (*cells) describe() string { return "process groups (macOS has no cgroups)" }
func (*cells) tree(*Spec) tree  { return group{} }
func (*cells) cgroup() string   { return "" }
func (*cells) close() error     { return nil }

// start starts the command. The umask belongs to the whole process here, so a shell sets it for the command.
func start(cmd *exec.Cmd, umask *uint32) error {
	if umask != nil {
		throughShell(cmd, *umask)
	}
	return cmd.Start()
}

// awaitExit blocks until the child is dead, and leaves it to be reaped. waitid can't: on macOS it also
// returns for a child that is stopped (golang/go#19314).
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
		case err != nil && !errors.Is(err, unix.ESRCH): // ESRCH: it is dead already
			return fmt.Errorf("watch the command: %w", err)
		}
		return nil
	}
}

// groupLives tells whether a process group has a member that is not a zombie.
func groupLives(id int) bool {
	const zombie = 5 // SZOMB of <sys/proc.h>
	members, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", id)
	if err != nil {
		return false
	}
	for _, m := range members {
		if m.Proc.P_stat != zombie {
			return true
		}
	}
	return false
}
