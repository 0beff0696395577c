package operator

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// explainIncidents is about a tick during an outage of Redis, or before its data were lost.
func explainIncidents(s *story) {
	for _, in := range s.incidents {
		switch during := s.show(in.From) + " and " + s.show(in.To); {
		case s.Fate == NoTick || s.at.After(in.To):
		case lostHistory(s, in) && !s.hasRecords():
			s.say("Redis lost its data between %s: earlier records may be missing", during)
		case in.Kind == journal.Outage && !s.at.Before(in.From.Truncate(time.Second)):
			s.say("Redis did not answer %s between %s", cmp.Or(in.Replica, "a replica"), during)
		}
	}
	if closed := s.state.Closed; s.Fate == Open && closed.After(s.state.Now) {
		s.say("its lock stays closed until %s, for one lease, since Redis lost its data", s.show(closed))
	}
}

// lostHistory reports whether Redis may have lost the record of the instant in one of some incidents. It has not if the job has a record from before that.
func lostHistory(s *story, incidents ...journal.Incident) bool {
	return slices.ContainsFunc(incidents, func(in journal.Incident) bool {
		older := func(r journal.Record) bool { return !r.Finished.IsZero() && r.Finished.Before(in.From) }
		return in.Kind == journal.DataLoss && !s.at.After(in.To) && !slices.ContainsFunc(s.past, older)
	})
}
