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

// tieToDemo keeps Ctrl-C on the terminal from a replica, because the demo ends its replicas itself. If the demo ends in any other way, the kernel kills the
// replica. The kernel does so at the end of the thread that started it. Go ends a thread only together with a goroutine that is locked to it, and the
// demo has none.
func tieToDemo(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of processes that a killed replica leaves behind.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// wardenTime bounds the wait for the wardens of killed replicas.
const wardenTime = 3 * time.Second

// endOrphans kills the processes that the wardens of killed replicas have left, and all that become children of this process when their parents die.
// It must be called when this process has no other children. It returns the number of processes that it killed.
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

// reapChildren reaps the dead children and returns the others.
func reapChildren() (living []int) {
	for _, p := range proc.Children() {
		if n, err := unix.Wait4(p.PID, nil, unix.WNOHANG, nil); n != p.PID && !errors.Is(err, unix.ECHILD) {
			living = append(living, p.PID)
		}
	}
	return living
}
