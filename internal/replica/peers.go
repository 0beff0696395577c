package replica

import (
	"sync/atomic"

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
	ids      []string // of all replicas: the set for most jobs
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

// met takes the replicas that are alive now.
func (p *peers) met(replicas []journal.Replica) {
	ids := make([]string, len(replicas))
	for i, r := range replicas {
		ids[i] = r.ID
	}
	p.all.Store(&acquaintance{replicas, ids})
}
