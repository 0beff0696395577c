package replica

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// shortestOutage is the least time without an answer that is an incident: shorter ones are usual, as at a failover or a restart of Redis, and cost nothing.
	shortestOutage = 2 * time.Second
	// mostUnwritten bounds the incidents that wait for Redis.
	mostUnwritten = 10
)

// incidents notes in the journal that Redis was away, or has lost its data. Each replica does so as soon as Redis answers: the leader may be another one then.
type incidents struct {
	journal *journal.Journal
	replica string
	count   func(kind string)

	silent    time.Time // since when Redis has not answered; zero while it does
	unwritten []journal.Incident
}

// failed notes that a request has failed which began at an instant of the server's clock.
func (i *incidents) failed(at time.Time) {
	if i.silent.IsZero() {
		i.silent = at
	}
}

// answered notes that Redis answers, at an instant of the server's clock.
func (i *incidents) answered(at time.Time) {
	if since := i.silent; !since.IsZero() && at.Sub(since) >= shortestOutage {
		i.add(journal.Outage, journal.Interval{From: since, To: at})
	}
	i.silent = time.Time{}
}

// add counts an incident, and has it written.
func (i *incidents) add(kind string, during journal.Interval) {
	i.count(kind)
	i.unwritten = append(i.unwritten, journal.Incident{Kind: kind, Interval: journal.Interval{From: during.From.UTC(), To: during.To.UTC()}, Replica: i.replica})
	i.unwritten = i.unwritten[max(len(i.unwritten)-mostUnwritten, 0):]
}

// write writes the incidents that are not written yet. A write that fails is done again after the next registration.
func (i *incidents) write(ctx context.Context, log hclog.Logger) {
	for len(i.unwritten) > 0 {
		if err := i.journal.NoteIncident(ctx, i.unwritten[0]); err != nil {
			log.Debug("incident of Redis not written yet", "error", err)
			return
		}
		i.unwritten = i.unwritten[1:]
	}
}
