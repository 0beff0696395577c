package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// registerWithin is the time within which all replicas that are up have registered, from the first answer of Redis.
const registerWithin = RegisterEvery + RegistrationDelay

// registerAgain is the maximum time from the end of an outage to the registration of a replica that was cut off. It allows for a pause and one attempt that
// times out.
const registerAgain = 2 * RegistrationDelay

// lastIncident returns the end of the newest incident after which replicas that are up may not have registered yet; zero if there is none. An outage no longer
// counts once a replica has registered more than registerAgain after its end. By then all replicas that the outage affected have registered.
func lastIncident(newestFirst []journal.Incident, replicas []journal.Replica) time.Time {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss || !slices.ContainsFunc(replicas, func(e journal.Replica) bool { return e.Seen.After(in.To.Add(registerAgain)) }) {
			return in.To
		}
	}
	return time.Time{}
}

// answersSince returns the time since which Redis has answered all replicas with its present data; zero if it is long ago. The argument since is the end of the
// last incident. If a Redis server started later, its start counts instead.
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

// lostActs describes the entries of the audit log that a loss of Redis' data may have removed; "" if there is no such loss. A loss does not count if an act
// from before it is still there, because the loss concerned other data.
func lostActs(newestFirst []journal.Incident, acts []journal.Act) string {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss && !slices.ContainsFunc(acts, func(a journal.Act) bool { return a.Time.Before(in.From) }) {
			return fmt.Sprintf("Redis lost its data between %s: earlier acts may be missing, also if their pauses are in force", boundsText(in.Interval))
		}
	}
	return ""
}

// boundsText returns the two ends of an interval.
func boundsText(i journal.Interval) string {
	return i.From.UTC().Format(time.RFC3339) + " and " + i.To.UTC().Format(time.RFC3339)
}
