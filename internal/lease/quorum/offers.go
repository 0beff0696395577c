package quorum

import (
	"maps"
	"sync"
	"time"
)

// An offers has the lease ids that may have been granted: nodes were asked to accept a register that grants them, and the outcome is unknown. The
// votes for these ids must not be taken back, because other clients would then consider the run dead, and its tick would be lost. The caller repeats
// the request with the same id later. An offers is safe for concurrent use.
type offers struct {
	mu    sync.Mutex
	until map[string]time.Duration // by lease id: the local instant after which no node has a row
}

// add adds a lease id that may be granted.
func (o *offers) add(id string, now time.Duration, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.until, func(_ string, end time.Duration) bool { return end < now })
	if o.until == nil {
		o.until = map[string]time.Duration{}
	}
	o.until[id] = now + lease
}

// isOpen reports whether a lease id may have been granted.
func (o *offers) isOpen(id string, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, ok := o.until[id]
	return ok && end >= now
}

// removeOffer removes a lease id whose outcome is known.
func (o *offers) removeOffer(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.until, id)
}
