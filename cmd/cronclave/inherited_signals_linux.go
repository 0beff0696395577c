package main

import (
	"bytes"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// inheritedSignals are the signals that this process was started to ignore, as under nohup. It goes on to ignore them.
var inheritedSignals = map[syscall.Signal]bool{}

// keepSignals keeps the signals that this process ignores or blocks since its start from the programs that it starts. The runtime resets a signal in them
// that is caught here, so this process catches what it ignores. A blocked signal is unblocked by executing this program anew: the runtime gives the mask
// of the start to all threads.
func keepSignals() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	if signalMask(status, "SigBlk") != 0 {
		executeUnblocked()
	}
	ignored := signalMask(status, "SigIgn")
	dropped := make(chan os.Signal, 1)
	for n := 1; n <= 64; n++ {
		s := syscall.Signal(n)
		if ignored&(1<<(n-1)) == 0 {
			continue
		}
		inheritedSignals[s] = true
		// At a terminal these two are sent again until the process stops or ignores them.
		if s != unix.SIGTTIN && s != unix.SIGTTOU || !hasTerminal() {
			signal.Notify(dropped, s)
		}
	}
}

// ignoredAtStart reports whether this process was started to ignore a signal.
func ignoredAtStart(s syscall.Signal) bool { return inheritedSignals[s] }

// executeUnblocked executes this program anew with no signal blocked. It returns if that fails.
func executeUnblocked() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err == nil && unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil) == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}

// hasTerminal reports whether this process has a controlling terminal.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// signalMask reads a set of signals in the text of /proc/PID/status.
func signalMask(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":\t"))
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, _ := strconv.ParseUint(string(text), 16, 64)
	return mask
}
