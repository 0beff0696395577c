package warden

import (
	"os"

	"golang.org/x/sys/unix"
)

// sweeper is empty on macOS.
type sweeper struct{}

func newSweeper() *sweeper { return &sweeper{} }

func (*sweeper) begin() {}

// group is the target on macOS: only a process group.
type group struct {
	leader int
	start  uint64
}

func (*sweeper) target(_, _ string) target { return &group{} }

func (g *group) begun(leader int, start uint64) { g.leader, g.start = leader, start }
func (g *group) forget()                        { g.leader = 0 }
func (g *group) terminate()                     { g.signal(unix.SIGTERM) }
func (g *group) strike()                        { g.signal(unix.SIGKILL) }

func (g *group) sweep() (clean bool) { return g.leader == 0 || birth(g.leader) != g.start }

// signal sends a signal to the group while its leader has its PID.
func (g *group) signal(s unix.Signal) {
	if g.leader != 0 && birth(g.leader) == g.start {
		_ = unix.Kill(-g.leader, s)
	}
}

// birth returns the time at which a process was started in microseconds, or 0 if it is gone.
func birth(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return uint64(p.Proc.P_starttime.Nano() / 1000)
}

// watchProcess returns -1: on macOS only the pipe shows the replica's end.
func watchProcess(int) int { return -1 }

// settle leaves the working directory.
func settle() { _ = os.Chdir("/") }

// leave does nothing: macOS has no cgroups.
func leave(string) {}
