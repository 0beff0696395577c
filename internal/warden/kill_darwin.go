package warden

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sweeper only creates targets. It scans no processes, because on macOS the helper kills only process groups.
type sweeper struct{}

func newSweeper() *sweeper { return &sweeper{} }

func (*sweeper) beginRound() {}

// group is the target on macOS. It consists of the run's process group only.
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

// signalGroup sends a signal to the group if the leader's PID still belongs to the leader.
func (g *group) signalGroup(s unix.Signal) {
	if g.leader != 0 && processStart(g.leader) == g.start {
		_ = unix.Kill(-g.leader, s)
	}
}

// processStart returns the start time of a process in microseconds since 1970, or 0 if the process does not exist.
func processStart(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return uint64(p.Proc.P_starttime.Nano() / 1000)
}

// watchProcess returns -1: on macOS only the end of the pipe shows that the replica has exited.
func watchProcess(int) int { return -1 }

func shieldHelper() { _ = os.Chdir("/") }

// leaveCgroup does nothing: macOS has no cgroups.
func leaveCgroup(string) {}

// bootTime returns CLOCK_MONOTONIC, which continues during suspend on macOS. It is the same for all processes of a machine.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it can't fail
	return time.Duration(now.Nano())
}
