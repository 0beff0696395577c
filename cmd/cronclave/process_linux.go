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

// inheritedSignals has the signals that this process was started to ignore, for example by nohup. signal.Ignored does not report them, because keepSignals
// catches them.
var inheritedSignals = map[syscall.Signal]bool{}

// keepSignals ensures that the programs that this process executes start with no signal ignored or blocked, even if this process was started with such signals.
// A new program starts with the default action for each signal that this process catches, so keepSignals catches and drops the ignored signals. To unblock
// signals, it executes this program again, because the Go runtime gives the initial signal mask to every thread.
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
		// A terminal sends SIGTTIN and SIGTTOU again and again to a process that catches them, until the process stops or ignores them.
		if s != unix.SIGTTIN && s != unix.SIGTTOU || !hasTerminal() {
			signal.Notify(dropped, s)
		}
	}
}

func ignoredAtStart(s syscall.Signal) bool { return inheritedSignals[s] }

// executeUnblocked executes this program again without blocked signals. It returns only if that fails.
func executeUnblocked() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err == nil && unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil) == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}

func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// signalMask returns a signal mask from the text of /proc/PID/status. name is the key of its line.
func signalMask(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":\t"))
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, _ := strconv.ParseUint(string(text), 16, 64)
	return mask
}

// protectMemory keeps other processes of the same user, such as jobs, from reading the environment and the memory of this process through /proc or ptrace.
// There they would find CRONCLAVE_REDIS and the contents of password files. The protection ends when this process executes another program.
//
// A cronclave process inside a run is protected only if it has CRONCLAVE_REDIS. Otherwise the replica of the run must be able to read its environment, to
// find stray processes of the run.
func protectMemory() {
	if os.Getenv(envRunID) != "" && os.Getenv(envRedis) == "" {
		return
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // PR_SET_DUMPABLE exists since Linux 2.4
}
