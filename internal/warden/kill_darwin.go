package warden

import (
	"os"

	"golang.org/x/sys/unix"
)

// sweeper is empty on macOS.
type sweeper struct{}

func newSweeper() *sweeper { return &sweeper{} }

func (*sweeper) beginRound() {}

// group is the target on macOS: only a process group.
type group struct {
	leader int
	start  uint64
}

func (*sweeper) newTarget(_, _ string) target { return &group{} }

func (g *group) setLeader(leader int, start uint64) { g.leader, g.start = leader, start }
func (g *group) forgetLeader()                      { g.leader = 0 }
func (g *group) terminate()                         { g.signalGroup(unix.SIGTERM) }
func (g *group) killKnown()                         { g.signalGroup(unix.SIGKILL) }

func (g *group) killRest() (clean bool) { return g.leader == 0 || processStart(g.leader) != g.start }

// signalGroup sends a signal to the group while its leader has its PID.
func (g *group) signalGroup(s unix.Signal) {
	if g.leader != 0 && processStart(g.leader) == g.start {
		_ = unix.Kill(-g.leader, s)
	}
}

// processStart returns the time at which a process was started in microseconds, or 0 if it is gone.
func processStart(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return uint64(p.Proc.P_starttime.Nano() / 1000)
}

// watchProcess returns -1: on macOS only the pipe shows the replica's end.
func watchProcess(int) int { return -1 }

// shieldHelper leaves the working directory.
func shieldHelper() { _ = os.Chdir("/") }

// leaveCgroup does nothing: macOS has no cgroups.
func leaveCgroup(string) {}
