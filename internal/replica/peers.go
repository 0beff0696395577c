package replica

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// peers holds the replicas that were alive at the last reading of the registry.
type peers struct {
	self string
	all  atomic.Pointer[aliveReplicas]
}

type aliveReplicas struct {
	replicas []journal.Replica
	ids      []string  // ids of all replicas, computed once because most jobs need them
	since    time.Time // time of the first successful reading after the last failure or loss of data; zero if there was none yet
	at       time.Time // time of the newest reading
}

// idsWithLabels returns this replica's id and the ids of the replicas with the given labels.
func (p *peers) idsWithLabels(where scheduler.Labels) (self string, ids []string) {
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

// isGone reports whether a replica is certainly no longer registered. To be certain, this replica must have read the registry for as long as a registration
// lasts, without a failure or a loss of data. In that time each replica that reaches Redis has registered.
func (p *peers) isGone(id string) bool {
	known := p.all.Load()
	if id == p.self || known == nil || known.since.IsZero() || known.at.Sub(known.since) < registerTTL || time.Since(known.at) > registerTTL {
		return false
	}
	return !slices.Contains(known.ids, id)
}

// setAlive records the replicas that are alive now.
func (p *peers) setAlive(replicas []journal.Replica) {
	ids := make([]string, len(replicas))
	for i, r := range replicas {
		ids[i] = r.ID
	}
	now := time.Now()
	next := &aliveReplicas{replicas: replicas, ids: ids, since: now, at: now}
	if last := p.all.Load(); last != nil && !last.since.IsZero() {
		next.since = last.since
	}
	p.all.Store(next)
}

// markIncomplete records that the list may be incomplete, because it could not be read or Redis has lost its data.
func (p *peers) markIncomplete() {
	if last := p.all.Load(); last != nil {
		doubted := *last
		doubted.since = time.Time{}
		p.all.Store(&doubted)
	}
}
