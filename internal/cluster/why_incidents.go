package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// explainIncidents mentions outages of Redis during the tick, and later losses of its data.
func explainIncidents(s *story) {
	for _, in := range s.incidents {
		switch during := s.formatTime(in.From) + " and " + s.formatTime(in.To); {
		case s.Fate == NoTick || s.at.After(in.To):
		case lostHistory(s, in) && !s.hasRecords():
			s.addLine("Redis lost its data between %s: earlier records may be missing", during)
		case in.Kind == journal.Outage && !s.at.Before(in.From.Truncate(time.Second)):
			s.addLine("Redis did not answer %s between %s", cmp.Or(in.Replica, "a replica"), during)
		}
	}
	if closed := s.state.Closed; s.Fate == Open && closed.After(s.state.Now) {
		s.addLine("its lock stays closed until %s, for one lease, since Redis lost its data", s.formatTime(closed))
	}
}

// lostHistory reports whether one of the incidents may have removed the record of the instant. If the job has a record from before the loss, the loss did not
// remove its records.
func lostHistory(s *story, incidents ...journal.Incident) bool {
	return slices.ContainsFunc(incidents, func(in journal.Incident) bool {
		older := func(r journal.Record) bool { return !r.Finished.IsZero() && r.Finished.Before(in.From) }
		return in.Kind == journal.DataLoss && !s.at.After(in.To) && !slices.ContainsFunc(s.past, older)
	})
}
