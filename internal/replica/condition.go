package replica

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// condition is how a replica is, as far as no other part of it knows. Its registration shows that.
type condition struct {
	refused        atomic.Pointer[string] // the first fault of a newer configuration
	heartbeatError atomic.Pointer[string] // the error of the heartbeat that it sends
	redisAccess    atomic.Pointer[string] // the reason for which new connections do not reach Redis
	standstill     atomic.Pointer[journal.Interval]
	margins        margins
	evicting       atomic.Bool // Redis drops keys that expire when its memory is short, as it answered last
	capacity       int         // how many runs it has at most; set before it runs
}

// complete adds the condition to an entry of the registry.
func (c *condition) complete(entry journal.Replica) journal.Replica {
	entry.MaxRunning, entry.LeaseMargin, entry.StoodStill = c.capacity, c.margins.least(), c.standstill.Load()
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

// mostUnstartable bounds how many jobs that can't be started a registration names.
const mostUnstartable = 10

// fewest bounds the jobs that can't be started, and the reasons; nil if there are none.
func fewest(jobs map[string]string) map[string]string {
	var few map[string]string
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		if few == nil {
			few = map[string]string{}
		}
		if len(few) < mostUnstartable {
			few[job] = operator.FirstLine(jobs[job], mostUnable)
		}
	}
	return few
}
