package scheduler

import (
	"sync"
)

// runningCounts counts the runs of this replica. It may be asked by anybody.
type runningCounts struct {
	mu   sync.Mutex
	all  int
	jobs map[string]int // those that have any
}

// add counts runs of a job that begin, or with a negative n end.
func (c *runningCounts) add(job string, n int) {
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
