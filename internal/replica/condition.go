package replica

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// condition holds the facts for the replica's registration that no other part of the replica stores.
type condition struct {
	refused        atomic.Pointer[string] // first fault of a newer configuration that was refused
	heartbeatError atomic.Pointer[string] // error of the heartbeat
	redisAccess    atomic.Pointer[string] // reason why new connections to Redis fail or soon will
	standstill     atomic.Pointer[journal.Interval]
	margins        margins
	evicting       atomic.Bool // whether Redis evicts keys with a time to live if memory runs short, by its last answer
	capacity       int         // maximum number of runs; set before the replica runs
}

// addCondition adds the condition to a registration.
func (c *condition) addCondition(entry journal.Replica) journal.Replica {
	entry.MaxRunning, entry.LeaseMargin, entry.StoodStill = c.capacity, c.margins.leastMargin(), c.standstill.Load()
	if refused := c.refused.Load(); refused != nil {
		entry.Refused = *refused
	}
	if what := c.heartbeatError.Load(); what != nil {
		entry.Heartbeat = *what
	}
	if what := c.redisAccess.Load(); what != nil {
		entry.RedisAccess = *what
	}
	return entry
}

// mostUnstartable is the maximum number of jobs that a registration lists because they can't be started.
const mostUnstartable = 10

// firstUnstartable returns at most mostUnstartable jobs that can't be started, with shortened reasons; nil if there are none.
func firstUnstartable(jobs map[string]string) map[string]string {
	var few map[string]string
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		if few == nil {
			few = map[string]string{}
		}
		if len(few) < mostUnstartable {
			few[job] = cluster.FirstLine(jobs[job], mostUnable)
		}
	}
	return few
}
