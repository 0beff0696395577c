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

// inheritedSignals has the signals that this process ignored at its start, as under nohup. It still ignores them.
var inheritedSignals = map[syscall.Signal]bool{}

// keepSignals makes programs of this process inherit the signals that the process ignores or blocks since its start. The runtime resets signals in
// them that this process has caught, so it catches and drops the ignored ones. It unblocks blocked signals by executing this program again, because
// the runtime gives the initial mask to all threads.
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
		// A terminal sends these two again and again until the process stops or ignores them.
		if s != unix.SIGTTIN && s != unix.SIGTTOU || !hasTerminal() {
			signal.Notify(dropped, s)
		}
	}
}

// ignoredAtStart reports whether this process ignored a signal at its start.
func ignoredAtStart(s syscall.Signal) bool { return inheritedSignals[s] }

// executeUnblocked executes this program again with no signal blocked. It returns only if that fails.
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

// signalMask returns a signal mask from the text of /proc/PID/status.
func signalMask(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":\t"))
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, _ := strconv.ParseUint(string(text), 16, 64)
	return mask
}
