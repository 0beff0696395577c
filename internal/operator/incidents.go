package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// registerWithin is the time within which all replicas that are up register, once Redis answers.
const registerWithin = RegisterEvery + RegistrationDelay

// registerAgain is the longest time that a replica which an outage has cut off takes to register after it: a pause, and an attempt that may time out.
const registerAgain = 2 * RegistrationDelay

// lastIncident returns the end of the newest incident after which replicas that are up may be missing; zero if there is none. An outage does not count once a
// replica has registered later than registerAgain after its end: the replicas that it hit have registered before that, and the others were not cut off.
func lastIncident(newestFirst []journal.Incident, replicas []journal.Replica) time.Time {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss || !slices.ContainsFunc(replicas, func(e journal.Replica) bool { return e.Seen.After(in.To.Add(registerAgain)) }) {
			return in.To
		}
	}
	return time.Time{}
}

// answersSince returns since when Redis answers all replicas, and has the data that it has, by its last incident and its servers; zero for long ago.
func answersSince(since time.Time, servers []redisconn.Server, now time.Time) time.Time {
	const long = 3600
	for _, s := range servers {
		if s.UptimeS == nil || *s.UptimeS > long || s.Keeps == redisconn.KeepsLocks {
			continue
		}
		if started := now.Add(-time.Duration(*s.UptimeS) * time.Second); started.After(since) {
			since = started
		}
	}
	return since
}

// newestIncident returns the newest incident of a kind within the last day, or nil.
func newestIncident(newestFirst []journal.Incident, kind string, now time.Time) *journal.Incident {
	for i, in := range newestFirst {
		if in.Kind == kind && now.Sub(in.To) <= journal.RememberLost {
			return &newestFirst[i]
		}
	}
	return nil
}

// lostActs says which entries of the audit log may be lost with the data of Redis, by all its acts; "" if none are, as far as is known. A loss that an older
// act has survived was one of other data.
func lostActs(newestFirst []journal.Incident, acts []journal.Act) string {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss && !slices.ContainsFunc(acts, func(a journal.Act) bool { return a.Time.Before(in.From) }) {
			return fmt.Sprintf("Redis lost its data between %s: earlier acts may be missing, also if their pauses are in force", bounds(in.Interval))
		}
	}
	return ""
}

// bounds names the instants between which an interval is.
func bounds(i journal.Interval) string {
	return i.From.UTC().Format(time.RFC3339) + " and " + i.To.UTC().Format(time.RFC3339)
}
