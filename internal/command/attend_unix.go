//go:build linux || darwin

package command

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attendance is what a command shares with this process: the signals that are passed on to it, and the terminal.
type attendance struct {
	signals  <-chan os.Signal
	terminal *terminal // nil: there is none, or the command does not get it
	leader   int
	passed   []os.Signal
}

// newAttendance prepares the sharing. It is called before the start, so that no key of the terminal is missed.
func (s *Spec) newAttendance() *attendance {
	a := &attendance{signals: s.Signals}
	if s.Attached {
		a.terminal = openTerminal()
	}
	return a
}

func (a *attendance) onStart(leader int) {
	a.leader = leader
	if a.terminal != nil {
		a.terminal.lendTo(leader)
	}
}

// passSignal passes a signal on to the whole group, once. A member that starts commands in groups of their own does the same.
func (a *attendance) passSignal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		a.passed = append(a.passed, s)
		_ = unix.Kill(-a.leader, number)
	}
}

// returnTerminal takes the terminal back, after the leader has died or was not started. The leader is not reaped yet.
func (a *attendance) returnTerminal() {
	if a.terminal != nil {
		a.terminal.takeBack()
	}
}

// passInterrupt passes Ctrl-C on to the processes that the terminal would have signalled if the command had no group of its own, such as the shell script
// that this process is a part of. This process gets the signal too, and is expected to take it for one of Spec.Signals.
func (a *attendance) passInterrupt(exit Exit) {
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT} {
		if a.terminal != nil && a.terminal.lent && a.signals != nil && exit.Signal == signalName(s) && !slices.Contains(a.passed, os.Signal(s)) {
			_ = unix.Kill(0, s)
		}
	}
}

// terminal is the controlling terminal of this process. Only the processes of its foreground group may read it, and they get the signals of its keys.
// The command has a group of its own, so that group must become the foreground group. Like a shell, this process stops when the command is stopped:
// otherwise the user could not go on working on the terminal.
type terminal struct {
	fd     int
	own    int // this process's own group
	leader int // process group of the command
	lent   bool
	stops  chan os.Signal // Ctrl-Z that this process received
	over   chan struct{}
	work   sync.WaitGroup
}

// openTerminal returns the controlling terminal, or nil if there is none.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, own: unix.Getpgrp(), stops: make(chan os.Signal, 1), over: make(chan struct{})}
	signal.Notify(t.stops, unix.SIGTSTP)
	return t
}

// lendTo gives the terminal to a command that has just started. If stdin or stdout is not a terminal, the command may be part of a pipeline whose other
// programs want the terminal. Then it gets the terminal only when it asks for it.
func (t *terminal) lendTo(leader int) {
	t.leader = leader
	signal.Ignore(unix.SIGTTOU) // it would stop this process when it takes the terminal back. The command no longer inherits that
	if isTerminal(0) && isTerminal(1) {
		t.giveToCommand()
	}
	t.work.Go(func() { t.watchStops(leader) })
	t.work.Go(t.passStops)
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
}

func (t *terminal) foregroundGroup() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// giveToCommand hands the terminal to the command if this process has it. It reports whether the command has the terminal now.
func (t *terminal) giveToCommand() bool {
	switch t.foregroundGroup() {
	case t.leader:
		return true
	case t.own:
		t.lent = true
		return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.leader) == nil
	}
	return false
}

// reclaim takes the terminal back from the command, and reports whether the command had it.
func (t *terminal) reclaim() (had bool) {
	if had = t.foregroundGroup() == t.leader; had {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	}
	return had
}

func (t *terminal) takeBack() {
	close(t.over)
	t.work.Wait()
	if t.leader != 0 {
		t.reclaim()
	}
	signal.Stop(t.stops)
	signal.Reset(unix.SIGTTOU)
	unix.Close(t.fd)
}

// passStops passes Ctrl-Z on to the command if this process got it, because the terminal was not the command's.
func (t *terminal) passStops() {
	for {
		select {
		case <-t.stops:
			_ = unix.Kill(-t.leader, unix.SIGTSTP)
		case <-t.over:
			return
		}
	}
}

// handleStop handles a stop of the command by a signal.
func (t *terminal) handleStop(by syscall.Signal) {
	switch by {
	case unix.SIGTTIN, unix.SIGTTOU: // it wants to use the terminal
		if !t.giveToCommand() {
			t.suspendSelf()
			t.giveToCommand()
		}
	case unix.SIGTSTP:
		had := t.reclaim()
		t.suspendSelf()
		if had {
			t.giveToCommand()
		}
	default: // the terminal is not the cause
		return
	}
	_ = unix.Kill(-t.leader, unix.SIGCONT)
}

// suspendSelf stops this process and its group, as Ctrl-Z does, and returns when it continues. It does not stop if no process could continue it: its
// group is the group of the session's leader, as in a container, or the leader has gone. The kernel ignores SIGTSTP in the same cases. SIGSTOP is
// used because the runtime does not restore SIGTSTP once it has caught it.
func (t *terminal) suspendSelf() {
	const effect = 100 * time.Millisecond // longer than the signal takes to arrive
	stopped := time.NewTimer(effect)
	defer stopped.Stop()
	if leader, err := unix.Getsid(0); err == nil && leader != t.own && unix.Kill(leader, 0) == nil {
		_ = unix.Kill(0, unix.SIGSTOP)
	}
	<-stopped.C
}
