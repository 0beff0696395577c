package warden

import (
	"os"

	"github.com/cronclave/cronclave/internal/proc"
)

// sweeper looks at the processes of the machine, or of our pid namespace: at most once for all runs of a round.
type sweeper struct {
	byNumber bool // the kernel can't signal a group by a handle
	latest   *sight
}

// sight is what one look has seen of the living.
type sight struct {
	byRun    map[string][]int // by the run's id
	groups   map[int]bool     // that have a member
	complete bool             // nothing was between two programs, where no environment can be read
}

func newSweeper() *sweeper { return &sweeper{} }

// begin begins a round: the next look is a new one.
func (s *sweeper) begin() { s.latest = nil }

func (s *sweeper) look() *sight {
	if s.latest == nil {
		s.latest = lookAround()
	}
	return s.latest
}

func lookAround() *sight {
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

// birth is when a process was started, in the kernel's own unit; 0 if it is gone. It distinguishes two processes that had the same number one after
// the other.
func birth(pid int) uint64 {
	p, _ := proc.Of(pid)
	return p.Start
}
