package warden

import (
	"os"

	"github.com/cronclave/cronclave/internal/proc"
)

// sweeper scans the processes of the machine, or of this PID namespace. All runs share one scan per round.
type sweeper struct {
	byNumber bool // the kernel can't signal a group through a pidfd
	latest   *sight
}

// sight is the result of a scan of the living processes.
type sight struct {
	byRun    map[string][]int // PIDs by run id
	groups   map[int]bool     // process groups that have a living member
	complete bool             // false if the environment of a process could not be read because the process was in exec
}

func newSweeper() *sweeper { return &sweeper{} }

// beginRound discards the last scan, so that the next call of currentSight scans again.
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

// processStart returns the start time of a process in clock ticks since boot, or 0 if the process does not exist. It distinguishes processes that had the
// same PID.
func processStart(pid int) uint64 {
	p, _ := proc.Of(pid)
	return p.Start
}
