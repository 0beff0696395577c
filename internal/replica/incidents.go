package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

const (
	// shortestOutage is the minimum time without an answer that counts as an incident. Shorter ones are common, as in a failover or a restart of Redis, and
	// harmless. Registrations are further apart, so an outage that is not much longer may go unnoticed.
	shortestOutage = 2 * time.Second
	// longestRegistration is longer than any registration that times out, unless the process stands still.
	longestRegistration = operator.RegistrationDelay + time.Second
	// mostUnwritten is the maximum number of incidents that wait for Redis.
	mostUnwritten = 10
)

// incidents records outages of Redis and losses of its data in the journal. Each replica does so as soon as Redis answers, because the leader may have
// changed by then.
type incidents struct {
	journal *journal.Journal
	replica string
	count   func(kind string)

	silent    time.Time // start of the time without an answer; zero while Redis answers
	unwritten []journal.Incident
}

// noteFailure records a failed registration that began at an instant of the server's clock. A refusal is an answer. If the registration took longer than its time
// limit, this process stood still, which shows nothing about Redis.
func (i *incidents) noteFailure(began time.Time, took time.Duration, err error) {
	switch {
	case !journal.Unanswered(err):
		i.noteAnswer(began.Add(took))
	case i.silent.IsZero() && took < longestRegistration:
		i.silent = began
	}
}

// noteAnswer records that Redis answered at an instant of the server's clock.
func (i *incidents) noteAnswer(at time.Time) {
	if since := i.silent; !since.IsZero() && at.Sub(since) >= shortestOutage {
		i.addIncident(journal.Outage, journal.Interval{From: since, To: at})
	}
	i.silent = time.Time{}
}

// addIncident counts an incident and queues it for the journal. After a failover to a slower clock an incident would end before it began, so its start is limited.
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
