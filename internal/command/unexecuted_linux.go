package command

import (
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// executed returns whether a child that was not reaped yet has executed a program; yes if that can't be told.
func executed(pid int) bool {
	p, ok := proc.Of(pid)
	return !ok || p.Executed()
}

// killUnexecuted kills the child that this process has forked, and that has not executed its program yet. There is one at most, since the runtime waits in the
// fork until it has.
func killUnexecuted(t tree) {
	if c, ok := t.(*cgroup); ok {
		_, _ = c.killer.WriteString("1")
	}
	for _, p := range proc.Children() {
		if !p.Dead() && !executed(p.PID) { // it may have since the list was made
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
}
