package scheduler

import (
	"maps"
	"sync"
)

// census counts the runs of this replica. It may be asked by anybody.
type census struct {
	mu   sync.Mutex
	all  int
	jobs map[string]int // those that have any
}

// add counts runs of a job that begin, or with a negative n end.
func (c *census) add(job string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs = map[string]int{}
	}
	c.all += n
	if c.jobs[job] += n; c.jobs[job] == 0 {
		delete(c.jobs, job)
	}
}

// Running is how many runs this replica has. It may be called at any time.
func (s *Scheduler) Running() int {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	return s.active.all
}

// RunningByJob is of which jobs they are; it has those only of which there are any. It may be called at any time.
func (s *Scheduler) RunningByJob() map[string]int {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	return maps.Clone(s.active.jobs)
}
