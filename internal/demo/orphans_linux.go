package demo

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
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
	for _, p := range proc.Children() {
		if n, err := unix.Wait4(p.PID, nil, unix.WNOHANG, nil); n != p.PID && !errors.Is(err, unix.ECHILD) {
			living = append(living, p.PID)
		}
	}
	return living
}
