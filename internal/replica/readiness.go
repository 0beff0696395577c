package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// A phase is a stage in the life of a replica.
type phase int32

const (
	starting   phase = iota // the replica waits for Redis
	scheduling              // the replica claims ticks
	draining                // the replica finishes its last runs
)

// readiness shows whether a replica claims ticks. Clients without a token may request it, so it calls Redis at most once a second.
type readiness struct {
	phase atomic.Int32 // holds a phase

	mu    sync.Mutex
	asked time.Time
	up    bool
}

func (r *readiness) enterPhase(p phase) { r.phase.Store(int32(p)) }

func (r *readiness) isPhase(p phase) bool { return phase(r.phase.Load()) == p }

// unreadyReason returns the reason why the replica claims nothing now, or "" if it claims ticks.
func (r *Replica) unreadyReason() string {
	switch {
	case r.readiness.isPhase(starting):
		return "starting: Redis has not answered yet, or is not fit to coordinate"
	case r.readiness.isPhase(draining):
		return "draining: the last runs end, and no more are started"
	case r.scheduler.Unable() != "":
		return "unable to start programs: see the log, or cronclave status"
	case !r.readiness.redisUp(r.redisUp):
		return "Redis does not answer, or is not fit to coordinate"
	}
	return ""
}

// redisUp returns the result of look, which it calls at most once a second.
func (r *readiness) redisUp(look func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) >= time.Second {
		r.up, r.asked = look(), time.Now()
	}
	return r.up
}
