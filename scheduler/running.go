package scheduler

import (
	"sync"
)

// A runningCounts counts the runs of this replica. It is safe for concurrent use.
type runningCounts struct {
	mu   sync.Mutex
	all  int
	jobs map[string]int // only jobs with runs
}

// add adds n to the number of runs of a job. A negative n counts runs that have ended.
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
