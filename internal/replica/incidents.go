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
	// shortestOutage is the least time without an answer that is an incident: shorter ones are usual, as at a failover or a restart of Redis, and cost nothing.
	// Registrations are further apart, so one that is not much longer may go unseen.
	shortestOutage = 2 * time.Second
	// longestRegistration is longer than a registration takes that times out, unless this process stands still meanwhile.
	longestRegistration = operator.RegistrationDelay + time.Second
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

// failed notes that a registration failed which began at an instant of the server's clock. A refusal is an answer. A registration that took too long says
// nothing about Redis: this process stood still.
func (i *incidents) failed(began time.Time, took time.Duration, err error) {
	switch {
	case !journal.Unanswered(err):
		i.answered(began.Add(took))
	case i.silent.IsZero() && took < longestRegistration:
		i.silent = began
	}
}

// answered notes that Redis answers, at an instant of the server's clock.
func (i *incidents) answered(at time.Time) {
	if since := i.silent; !since.IsZero() && at.Sub(since) >= shortestOutage {
		i.add(journal.Outage, journal.Interval{From: since, To: at})
	}
	i.silent = time.Time{}
}

// add counts an incident, and has it written. After a failover to a slower clock it would end before it began.
func (i *incidents) add(kind string, during journal.Interval) {
	i.count(kind)
	if during.From.After(during.To) {
		during.From = during.To
	}
	i.unwritten = append(i.unwritten, journal.Incident{Kind: kind, Interval: journal.Interval{From: during.From.UTC(), To: during.To.UTC()}, Replica: i.replica})
	i.unwritten = i.unwritten[max(len(i.unwritten)-mostUnwritten, 0):]
}

// write writes the incidents that are not written yet. A write that fails is done again after the next registration, unless it can never succeed.
func (i *incidents) write(ctx context.Context, log hclog.Logger) {
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
