package warden

import (
	"os"

	"github.com/cronclave/cronclave/internal/proc"
)

// sweeper scans the processes of the machine, or of this PID namespace, at most once per round for all runs.
type sweeper struct {
	byNumber bool // the kernel can't signal a group by a pidfd
	latest   *sight
}

// sight is the result of one scan of the living processes.
type sight struct {
	byRun    map[string][]int // by the run's id
	groups   map[int]bool     // groups that have a member
	complete bool             // false if a process was in exec, when its environment can't be read
}

func newSweeper() *sweeper { return &sweeper{} }

// beginRound begins a round, in which the first look scans again.
func (s *sweeper) beginRound() { s.latest = nil }

func (s *sweeper) currentSight() *sight {
	if s.latest == nil {
		s.latest = scanProcesses()
	}
	return s.latest
}

func scanProcesses() *sight {
	seen := &sight{byRun: map[string][]int{}, groups: map[int]bool{}}
	all, err := proc.All()
	seen.complete = err == nil
	for _, p := range all {
		if p.PID == os.Getpid() || p.Dead() || p.Kernel() {
			continue
		}
		seen.groups[p.Group] = true
		switch id, known := proc.RunOf(p.PID); {
		case !known:
			seen.complete = false
		case id != "":
			seen.byRun[id] = append(seen.byRun[id], p.PID)
		}
	}
	return seen
}

// processStart returns the time at which a process was started in the kernel's own unit, or 0 if it is gone. It distinguishes processes that had the same
// number.
func processStart(pid int) uint64 {
	p, _ := proc.Of(pid)
	return p.Start
}
