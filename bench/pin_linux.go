package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pin puts this process, and all that it starts from now on, on one CPU; free undoes it for this process. With
// client and server on two CPUs a round trip consists mostly of waking them up, which hides all differences.
func pin() (free func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	for cpu := range len(before) * strconv.IntSize {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu) // the last: the first often serves the interrupts
		}
	}
	procs := runtime.GOMAXPROCS(1)
	free = func() error {
		runtime.GOMAXPROCS(procs)
		return moveThreads(&before)
	}
	if err := moveThreads(&one); err != nil {
		return nil, errors.Join(err, free())
	}
	return free, nil
}

// moveThreads gives every thread of this process the same CPUs; a new thread has those of the one that made it. The
// second pass is for those that were made during the first.
func moveThreads(cpus *unix.CPUSet) error {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set the CPU affinity: %w", err)
			}
		}
	}
	return nil
}

// endWithUs has a child killed when this process ends without having done so itself.
func endWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
