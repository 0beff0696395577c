package replica

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// A lossWatch detects whether Redis has lost its data, from the results of a replica's registrations.
//
// The main evidence is the epoch, a random value that never expires. After a loss, the first replica that registers sets a new epoch. If Redis restarts with an
// old snapshot, the epoch is unchanged, but the registration is missing although it cannot have expired. A missing registration alone proves nothing: another
// replica may have taken over this replica's name and removed the registration, or Redis may have evicted it because memory ran short.
type lossWatch struct {
	epoch   string            // the last epoch that was read; "" before the first
	renewed time.Time         // time of the last registration; zero before the first
	suspect *journal.Interval // the interval in which the registration disappeared, until the cause is known; otherwise nil
}

type loss int

const (
	lossNone        loss = iota
	lossUnsure           // data may be lost: a master did not answer, or the cause of a missing key is not known yet
	lossOfEntry          // the registration or a canary (a key on each master of a Redis Cluster) has expired
	lossToEviction       // Redis evicts keys with a time to live, and has probably evicted the registration or a canary
	lossToSuccessor      // another replica has taken over the name, and removed the registration
	lossOfData           // Redis has lost its data
)

type sighting struct {
	journal.Registration
	canary    journal.CanaryState
	successor succession
	evicts    func() bool // sends a request; reports whether Redis evicts keys with a time to live when memory runs short
}

// missingKeyLoss returns the cause of a missing key that cannot have expired: an eviction if Redis evicts keys with a time to live, and otherwise a loss of data.
// A new epoch always means lost data, because the epoch never expires and is never evicted.
func (s sighting) missingKeyLoss() loss {
	if s.evicts() {
		return lossToEviction
	}
	return lossOfData
}

// A succession shows whether another replica may just have taken over this replica's name.
type succession int

const (
	successionUnknown succession = iota // the list of replicas could not be read
	noSuccessor
	hasSuccessor
)

// A successorWatch counts, for each other replica with this replica's name, the lists of replicas that contained it. Its zero value is ready for use.
type successorWatch struct{ listed map[string]int }

// findSuccessor checks a list of all replicas, including draining ones, for a successor. A successor registers, and soon afterwards removes this replica's
// registration. So only a replica of the same name that was listed once or twice can be the successor. Replicas in the first list that this replica reads were
// registered before it, and are no successors.
func (w *successorWatch) findSuccessor(all []journal.Replica, self journal.Replica) succession {
	const old = 3
	found, listed := noSuccessor, map[string]int{}
	for _, o := range all {
		if o.Name != self.Name || o.ID == self.ID {
			continue
		}
		n := w.listed[o.ID] + 1
		if w.listed == nil {
			n = old
		}
		if n < old {
			found = hasSuccessor
		}
		listed[o.ID] = n
	}
	w.listed = listed
	return found
}

func (w *lossWatch) hasRegistered() bool { return !w.renewed.IsZero() }

// detectLoss evaluates the result of a registration that began at renewed and was answered at now. It returns the kind of loss, and the interval in which the
// loss happened.
func (w *lossWatch) detectLoss(found sighting, renewed, now time.Time) (loss, journal.Interval) {
	before, since := *w, journal.Interval{From: w.renewed, To: now}
	w.epoch, w.renewed = cmp.Or(found.Epoch, before.epoch), renewed
	switch {
	case !before.hasRegistered():
		return lossNone, since
	case before.epoch != "" && w.epoch != before.epoch:
		w.suspect = nil
		return lossOfData, since
	case found.canary == journal.CanaryMissing && !mayExpireIn(since):
		w.suspect = nil
		return found.missingKeyLoss(), since
	case mayExpireIn(since) && (!found.Known || found.canary == journal.CanaryMissing):
		w.suspect = nil
		return lossOfEntry, since
	case !found.Known && w.suspect == nil:
		w.suspect = &since
	}
	return w.explainMissing(found)
}

// mayExpireIn reports whether keys with the time to live of a registration may expire in an interval.
func mayExpireIn(i journal.Interval) bool { return i.Length() >= registerTTL-redisconn.Timeout }

// explainMissing returns the cause of a missing registration. While the list of replicas cannot be read, it returns lossUnsure.
func (w *lossWatch) explainMissing(found sighting) (loss, journal.Interval) {
	if w.suspect == nil || found.successor == successionUnknown {
		if found.Known && found.EpochError == nil && found.canary == journal.CanaryIntact {
			return lossNone, journal.Interval{}
		}
		return lossUnsure, journal.Interval{}
	}
	since := *w.suspect
	w.suspect = nil
	if found.successor == hasSuccessor {
		return lossToSuccessor, since
	}
	return found.missingKeyLoss(), since
}

// A lossLog logs losses. It limits the warnings, because a loss may recur at each renewal.
type lossLog struct{ warned map[loss]time.Time }

// warnOfLossAgainAfter is the minimum time between two warnings about losses of one kind.
const warnOfLossAgainAfter = time.Minute

var lossMessages = map[loss]string{
	lossOfEntry:     "registration expired, since this replica could not renew it in time; re-announcing all jobs",
	lossToEviction:  "Redis lacks a key of this replica: it evicts keys that expire, or has lost a part of its data; re-announcing all jobs; set maxmemory-policy noeviction",
	lossToSuccessor: "registration removed by another replica of this name, since this one did not renew it in time; re-announcing all jobs",
	lossOfData: "Redis lost its data (FLUSHALL, a restart without its data, or a failover); this replica restores the locks that it knows; earlier history " +
		"may be missing; check appendonly and acked_replicas",
}

func (l *lossLog) logLoss(kind loss, since journal.Interval, log hclog.Logger) {
	message, lost := lossMessages[kind]
	if !lost {
		return
	}
	args := []any{"since", since.From.UTC().Format(time.RFC3339)}
	if kind == lossOfData {
		args = append(args, "code", cluster.CodeDataLost)
	}
	if time.Since(l.warned[kind]) < warnOfLossAgainAfter {
		log.Debug(message, args...)
		return
	}
	if l.warned == nil {
		l.warned = map[loss]time.Time{}
	}
	l.warned[kind] = time.Now()
	log.Warn(message, args...)
}

const (
	// shortestOutage is the minimum time without an answer that counts as an incident. Shorter outages are common, as in a failover or a restart of Redis, and do
	// no harm. A longer outage also goes unnoticed if it begins and ends between two registrations.
	shortestOutage = 2 * time.Second
	// longestRegistration exceeds the time-out of a registration. If a registration takes longer, the process stood still.
	longestRegistration = cluster.RegistrationDelay + time.Second
	// mostUnwritten is the maximum number of incidents that wait to be written to Redis.
	mostUnwritten = 10
)

// incidents records outages of Redis and losses of its data in the journal, as soon as Redis answers. Every replica does this, not only the leader, because the
// leader may change during an outage.
type incidents struct {
	journal *journal.Journal
	replica string
	events  *events.Bus

	silent    time.Time                 // start of the time without an answer; zero while Redis answers
	away      atomic.Pointer[time.Time] // silent for other goroutines; nil while Redis answers
	unwritten []journal.Incident
}

// noteFailure records a failed registration. began is the start of the registration by the clock of Redis. An error reply from Redis counts as an answer. If the
// registration took longer than its time limit, this process stood still, and the failure shows nothing about Redis.
func (i *incidents) noteFailure(began time.Time, took time.Duration, err error) {
	switch {
	case !journal.Unanswered(err):
		i.noteAnswer(began.Add(took))
	case i.silent.IsZero() && took < longestRegistration:
		i.silent = began
		i.away.Store(&began)
	}
}

// noteAnswer records that Redis answered at the given time, by the clock of Redis.
func (i *incidents) noteAnswer(at time.Time) {
	if since := i.silent; !since.IsZero() && at.Sub(since) >= shortestOutage {
		i.addIncident(journal.Outage, journal.Interval{From: since, To: at})
	}
	i.silent = time.Time{}
	i.away.Store(nil)
}

// addIncident publishes an incident and queues it for the journal. After a failover to a server whose clock is behind, an incident could end before it began.
// The start of such an incident is set to its end.
func (i *incidents) addIncident(kind string, during journal.Interval) {
	if during.From.After(during.To) {
		during.From = during.To
	}
	i.events.Publish(events.ProblemEnded{Code: kind, Interval: during})
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
