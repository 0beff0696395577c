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

// tieToDemo puts a replica into its own process group. Ctrl-C on the terminal then reaches only the demo, which ends its replicas itself. If the demo is
// killed, the kernel kills the replica: Pdeathsig takes effect when the thread that started the replica ends. In a running demo that thread does not end, because
// Go ends a thread only if a goroutine that is locked to it ends, and the demo has no such goroutine.
func tieToDemo(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of all processes that a killed replica leaves behind.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// wardenTime is the maximum time to wait until the wardens of killed replicas have done their work.
const wardenTime = 3 * time.Second

// endOrphans first waits for the wardens of killed replicas. Then it kills all processes that are left, including those that become children of this process
// when their parents die. It returns the number of processes that it killed. This process must have no other children.
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

// reapChildren reaps the children that have died, and returns those that live.
func reapChildren() (living []int) {
	for _, p := range proc.Children() {
		if n, err := unix.Wait4(p.PID, nil, unix.WNOHANG, nil); n != p.PID && !errors.Is(err, unix.ECHILD) {
			living = append(living, p.PID)
		}
	}
	return living
}
