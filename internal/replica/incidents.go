package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// shortestOutage is the minimum time without an answer that counts as an incident. Shorter outages are common, as in a failover or a restart of Redis, and do
	// no harm. Longer ones may go unnoticed too if they fall between two registrations.
	shortestOutage = 2 * time.Second
	// longestRegistration is longer than any registration that times out. A registration that takes longer shows that the process stood still.
	longestRegistration = cluster.RegistrationDelay + time.Second
	// mostUnwritten is the maximum number of incidents that wait to be written to Redis.
	mostUnwritten = 10
)

// incidents records outages of Redis and losses of its data in the journal. Every replica records them as soon as Redis answers, because the leader may have
// changed by then.
type incidents struct {
	journal *journal.Journal
	replica string
	count   func(kind string)

	silent    time.Time // start of the time without an answer; zero while Redis answers
	unwritten []journal.Incident
}

// noteFailure records a failed registration. began is its start by the clock of Redis. An error reply from Redis counts as an answer. If the registration took
// longer than its time limit, this process stood still, and the failure shows nothing about Redis.
func (i *incidents) noteFailure(began time.Time, took time.Duration, err error) {
	switch {
	case !journal.Unanswered(err):
		i.noteAnswer(began.Add(took))
	case i.silent.IsZero() && took < longestRegistration:
		i.silent = began
	}
}

// noteAnswer records that Redis answered at the given time, by the clock of Redis.
func (i *incidents) noteAnswer(at time.Time) {
	if since := i.silent; !since.IsZero() && at.Sub(since) >= shortestOutage {
		i.addIncident(journal.Outage, journal.Interval{From: since, To: at})
	}
	i.silent = time.Time{}
}

// addIncident counts an incident and queues it for the journal. If Redis failed over to a server whose clock is behind, the incident would end before it began.
// Its start is then moved to its end.
func (i *incidents) addIncident(kind string, during journal.Interval) {
	i.count(kind)
	if during.From.After(during.To) {
		during.From = during.To
	}
	i.unwritten = append(i.unwritten, journal.Incident{Kind: kind, Interval: journal.Interval{From: during.From.UTC(), To: during.To.UTC()}, Replica: i.replica})
	i.unwritten = i.unwritten[max(len(i.unwritten)-mostUnwritten, 0):]
}

// writeIncidents writes the queued incidents. A failed write is repeated after the next registration, unless it can never succeed.
func (i *incidents) writeIncidents(ctx context.Context, log hclog.Logger) {
	for len(i.unwritten) > 0 {
		if err := i.journal.NoteIncident(ctx, i.unwritten[0]); err != nil {
			log.Debug("incident of Redis not written", "error", err)
			if !errors.Is(err, journal.ErrInvalid) {
				return
			}
		}
		i.unwritten = i.unwritten[1:]
	}
}
