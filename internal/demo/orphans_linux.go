package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tie keeps Ctrl-C on the terminal from a replica, which the demo itself ends, and has the kernel kill it when the demo
// goes away in any other way. (The signal comes with the end of the thread that started it. Go ends a thread only
// together with a goroutine that locked itself to it, which nothing here does.)
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of what a killed replica leaves behind.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// wardenTime is how long the wardens of killed replicas have for their work.
const wardenTime = 3 * time.Second

// endOrphans kills the processes that the wardens of killed replicas have left, with all that become our children when their parents die. It is
// called when this process has no child of its own any more, and returns how many it had to kill.
func endOrphans() int {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for late := time.Now().Add(wardenTime); len(reapChildren()) > 0 && time.Now().Before(late); {
		<-look.C
	}
	killed := map[int]bool{}
	for {
		children := reapChildren()
		if len(children) == 0 {
			return len(killed)
		}
		for _, pid := range children {
			killed[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}
}

// reapChildren reaps the dead ones and returns the others.
func reapChildren() (living []int) {
	for _, pid := range childrenOf(os.Getpid()) {
		if n, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); n != pid && !errors.Is(err, unix.ECHILD) {
			living = append(living, pid)
		}
	}
	return living
}

func childrenOf(parent int) []int {
	var children []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		// The name in parentheses may hold spaces and parentheses itself.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}
