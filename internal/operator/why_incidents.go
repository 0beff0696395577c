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
		case in.Kind == journal.DataLoss && !s.hasRecords():
			s.say("Redis lost its data between %s: the earlier history is gone", during)
		case in.Kind == journal.Outage && !s.at.Before(in.From.Truncate(time.Second)):
			s.say("Redis did not answer %s between %s", cmp.Or(in.Replica, "a replica"), during)
		}
	}
	if closed := s.state.Closed; s.Fate == Open && closed.After(s.state.Now) {
		s.say("its lock stays closed until %s, for one lease, since Redis lost its data", s.show(closed))
	}
}

// lostHistory reports whether Redis has lost the history of an instant with its data.
func lostHistory(incidents []journal.Incident, at time.Time) bool {
	return slices.ContainsFunc(incidents, func(in journal.Incident) bool { return in.Kind == journal.DataLoss && !at.After(in.To) })
}
