package replica

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// peers is the replicas that were alive when last looked at.
type peers struct {
	self string
	all  atomic.Pointer[acquaintance]
}

type acquaintance struct {
	replicas []journal.Replica
	ids      []string  // of all replicas: the set for most jobs
	since    time.Time // when the first of the readings began that had no failure or loss of data between them; zero: there was one since
	at       time.Time // when the newest was made
}

// get returns the ids of those that have these labels.
func (p *peers) get(where scheduler.Labels) (self string, ids []string) {
	known := p.all.Load()
	if known == nil {
		return p.self, nil
	}
	if len(where) == 0 {
		return p.self, known.ids
	}
	for _, r := range known.replicas {
		if scheduler.Labels(r.Labels).Include(where) {
			ids = append(ids, r.ID)
		}
	}
	return p.self, ids
}

// gone returns whether a replica is registered no more. It is, as long as it may be registered and unable to say so: until this replica has read the registry
// for as long as a registration lasts, without a failure or a loss of data, since each replica that reaches Redis has registered meanwhile.
func (p *peers) gone(id string) bool {
	known := p.all.Load()
	if id == p.self || known == nil || known.since.IsZero() || known.at.Sub(known.since) < registerTTL || time.Since(known.at) > registerTTL {
		return false
	}
	return !slices.Contains(known.ids, id)
}

// met takes the replicas that are alive now.
func (p *peers) met(replicas []journal.Replica) {
	ids := make([]string, len(replicas))
	for i, r := range replicas {
		ids[i] = r.ID
	}
	now := time.Now()
	next := &acquaintance{replicas: replicas, ids: ids, since: now, at: now}
	if last := p.all.Load(); last != nil && !last.since.IsZero() {
		next.since = last.since
	}
	p.all.Store(next)
}

// doubt notes that the list may be incomplete: it could not be read, or Redis has lost its data.
func (p *peers) doubt() {
	if last := p.all.Load(); last != nil {
		doubted := *last
		doubted.since = time.Time{}
		p.all.Store(&doubted)
	}
}
