package operator

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// registerWithin is the time within which all replicas that are up register, once Redis answers.
const registerWithin = RegisterEvery + RegistrationDelay

// answersSince returns since when Redis answers, and has the data that it has; zero for long ago.
func answersSince(newestFirst []journal.Incident, servers []redisconn.Server, now time.Time) (since time.Time) {
	if len(newestFirst) > 0 {
		since = newestFirst[0].To
	}
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

// lostActs says which entries of the audit log are lost with the data of Redis; "" if none are, as far as is known.
func lostActs(newestFirst []journal.Incident) string {
	for _, in := range newestFirst {
		if in.Kind == journal.DataLoss {
			return fmt.Sprintf("Redis lost its data between %s: earlier acts are not in the log, also if their pauses are in force", bounds(in.Interval))
		}
	}
	return ""
}

// bounds names the instants between which an interval is.
func bounds(i journal.Interval) string {
	return i.From.UTC().Format(time.RFC3339) + " and " + i.To.UTC().Format(time.RFC3339)
}
