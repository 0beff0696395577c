//go:build linux || darwin

package process

import (
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attendance connects a running command with this process: it passes signals on to the command, and lends it the terminal.
type attendance struct {
	signals  <-chan os.Signal
	terminal *terminal // nil if there is no terminal, or if the command does not get it
	leader   int
	passed   []os.Signal
}

// newAttendance opens the terminal for an attached command. It is called before the start, so that no Ctrl-Z is missed.
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

// passSignal passes a signal on to the command's whole process group. A member that starts commands in groups of their own must pass the signal on to these
// groups.
func (a *attendance) passSignal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		a.passed = append(a.passed, s)
		_ = unix.Kill(-a.leader, number)
	}
}

// returnTerminal takes the terminal back after the command has died or was not started. It must come before the leader is reaped, because it compares the
// leader's PID with the foreground group.
func (a *attendance) returnTerminal() {
	if a.terminal != nil {
		a.terminal.takeBack()
	}
}

// passInterrupt repeats the signal of a Ctrl-C or Ctrl-\ that ended the command, for this process's own group, which may include a calling shell script. The
// terminal sent the signal only to the command's group. This process receives the signal too, through Spec.Signals.
func (a *attendance) passInterrupt(exit Exit) {
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT} {
		if a.terminal != nil && a.terminal.lent && a.signals != nil && exit.Signal == signalName(s) && !slices.Contains(a.passed, os.Signal(s)) {
			_ = unix.Kill(0, s)
		}
	}
}

// terminal is the controlling terminal of this process. Only the foreground process group of the terminal can read from it and gets the signals of keys such
// as Ctrl-C. The command has a process group of its own, which must therefore become the foreground group. When the command is stopped, this process stops
// too, because otherwise the user would not get the terminal back.
type terminal struct {
	fd     int
	own    int // this process's own group
	leader int // PID of the leader of the command's process group
	lent   bool
	stops  chan os.Signal // receives SIGTSTP if Ctrl-Z signals this process
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
// programs need the terminal. The command then gets the terminal only when it tries to use it.
func (t *terminal) lendTo(leader int) {
	t.leader = leader
	signal.Ignore(unix.SIGTTOU) // SIGTTOU would stop this process in takeBack; the command does not inherit the ignored signal, because it has already started
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

// giveToCommand makes the command's group the foreground group, if the foreground group is this process's own. It reports whether the command has the terminal
// now.
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

// passStops passes Ctrl-Z on to the command. This process gets Ctrl-Z only if the command does not have the terminal.
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

func (t *terminal) handleStop(by syscall.Signal) {
	switch by {
	case unix.SIGTTIN, unix.SIGTTOU: // the command wants to use the terminal
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
	default: // another signal, which has nothing to do with the terminal
		return
	}
	_ = unix.Kill(-t.leader, unix.SIGCONT)
}

// suspendSelf stops this process and its group, as Ctrl-Z does, and returns when the process continues. It does nothing if no shell could continue the
// process: the session's leader has exited or is in the same group, as in a container. The kernel ignores SIGTSTP in these cases too. suspendSelf sends
// SIGSTOP because the Go runtime does not restore the default action of SIGTSTP once it has caught that signal.
func (t *terminal) suspendSelf() {
	const effect = 100 * time.Millisecond // longer than the signal takes to arrive
	stopped := time.NewTimer(effect)
	defer stopped.Stop()
	if leader, err := unix.Getsid(0); err == nil && leader != t.own && unix.Kill(leader, 0) == nil {
		_ = unix.Kill(0, unix.SIGSTOP)
	}
	<-stopped.C
}

// signalName returns the name of a signal, such as SIGTERM, or SIG42 for a signal without a name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

// signalNumber is the inverse of signalName. It returns 0 for an unknown name.
func signalNumber(name string) int {
	if s := unix.SignalNum(name); s != 0 {
		return int(s)
	}
	return fromNumbered(name)
}
