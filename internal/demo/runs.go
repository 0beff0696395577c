package demo

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

// known is what the replicas' logs have told so far: their runs, and the outcomes of these and of other ticks.
type known struct {
	jobs     map[string]*config.Job
	runs     []*run          // in the order of their starts
	byID     map[string]*run // the same
	open     []*run          // that are not known to have ended
	shown    map[string]bool // by id: runs that were shown as running
	long     map[string]bool // jobs whose runs last long enough to be shown as running
	outcomes []journal.Record
}

func newRuns(jobs []*config.Job) known {
	s := known{jobs: map[string]*config.Job{}, byID: map[string]*run{}, shown: map[string]bool{}, long: map[string]bool{}}
	for _, j := range jobs {
		s.jobs[j.Name] = j
	}
	return s
}

func (s *known) start(l *logLine) *run {
	r := l.run()
	s.runs = append(s.runs, &r)
	s.byID[r.ID] = &r
	s.open = append(s.open, &r)
	return &r
}

// end takes the outcome of a run. A run whose start was not reported is made up from the known facts.
func (s *known) end(l *logLine, outcome string, finished bool) *run {
	r := s.byID[l.RunID]
	if r == nil {
		made := l.run()
		r = &made
	}
	s.open = slices.DeleteFunc(s.open, func(o *run) bool { return o.ID == l.RunID })
	if finished {
		r.Ended = l.At
		if !r.Started.IsZero() && r.Ended.Sub(r.Started) > longRun {
			s.long[r.Job] = true
		}
	}
	s.outcomes = append(s.outcomes, journal.Record{RunID: r.ID, Job: r.Job, Tick: r.Tick, Token: r.Token, Outcome: outcome})
	return r
}

// idle takes the outcome of a tick without a run.
func (s *known) idle(l *logLine) {
	s.outcomes = append(s.outcomes, journal.Record{Job: l.Job, Tick: l.Tick, Outcome: l.Outcome})
}

// has returns whether a run's outcome is known.
func (s *known) has(id string) bool {
	return slices.ContainsFunc(s.outcomes, func(r journal.Record) bool { return r.RunID == id })
}

// longRun is from when on a run is shown as running, too.
const longRun = time.Second
