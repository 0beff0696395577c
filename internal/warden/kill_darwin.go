package warden

import (
	"os"

	"golang.org/x/sys/unix"
)

// sweeper has nothing to keep here.
type sweeper struct{}

func newSweeper() *sweeper { return &sweeper{} }

func (*sweeper) begin() {}

// group is the target on macOS: a process group, nothing else.
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

// signal reaches the group as long as its leader has its number.
func (g *group) signal(s unix.Signal) {
	if g.leader != 0 && birth(g.leader) == g.start {
		_ = unix.Kill(-g.leader, s)
	}
}

// birth is when a process was started, in microseconds; 0 if it is gone.
func birth(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return uint64(p.Proc.P_starttime.Nano() / 1000)
}

// watchProcess has no means on macOS: the pipe shows the replica's end.
func watchProcess(int) int { return -1 }

// settle holds no folder.
func settle() { _ = os.Chdir("/") }

// leave does nothing either.
func leave(string) {}
