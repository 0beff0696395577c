package quorum

import (
	"maps"
	"sync"
	"time"
)

// offers are lease ids for which nodes were asked to accept a register that grants them, and whose claimant knows of no outcome: they may be granted. Their votes
// stay, or the run would look dead to others, and its tick would be lost. A claimant asks again under the same id in calls of their own. It may be used at any time.
type offers struct {
	mu    sync.Mutex
	until map[string]time.Duration // local instants, after which no node has a row of it
}

// add makes a lease id one that may be granted.
func (o *offers) add(id string, now time.Duration, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.until, func(_ string, end time.Duration) bool { return end < now })
	if o.until == nil {
		o.until = map[string]time.Duration{}
	}
	o.until[id] = now + lease
}

// open reports whether a lease id may be granted.
func (o *offers) open(id string, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, ok := o.until[id]
	return ok && end >= now
}

// closed is for a lease id of which the outcome is known.
func (o *offers) closed(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.until, id)
}
