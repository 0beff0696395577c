package demo

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

// known collects what the logs of the replicas have reported so far.
type known struct {
	jobs     map[string]*config.Job
	runs     []*run          // in the order of their starts
	byID     map[string]*run // the same runs by id
	open     []*run          // runs whose end was not reported yet
	shown    map[string]bool // ids of runs that were printed as running
	long     map[string]bool // jobs whose runs are long enough to be printed as running
	outcomes []journal.Record
}

func newRuns(jobs []*config.Job) known {
	s := known{jobs: map[string]*config.Job{}, byID: map[string]*run{}, shown: map[string]bool{}, long: map[string]bool{}}
	for _, j := range jobs {
		s.jobs[j.Name] = j
	}
	return s
}

func (s *known) startRun(l *logLine) *run {
	r := l.toRun()
	s.runs = append(s.runs, &r)
	s.byID[r.ID] = &r
	s.open = append(s.open, &r)
	return &r
}

// endRun records the outcome of a run and returns the run. If no log reported the start, it creates the run from the log line.
func (s *known) endRun(l *logLine, outcome string, finished bool) *run {
	r := s.byID[l.RunID]
	if r == nil {
		made := l.toRun()
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

// noteIdle records the outcome of a tick without a run.
func (s *known) noteIdle(l *logLine) {
	s.outcomes = append(s.outcomes, journal.Record{Job: l.Job, Tick: l.Tick, Outcome: l.Outcome})
}

// hasOutcome reports whether a log has reported the outcome of a run.
func (s *known) hasOutcome(id string) bool {
	return slices.ContainsFunc(s.outcomes, func(r journal.Record) bool { return r.RunID == id })
}

// longRun is the minimum duration of a run that is printed as running.
const longRun = time.Second
