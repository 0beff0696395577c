package scheduler

// After: a job runs once for each tick that all jobs before it have ended ok.
//
// Such a job has no schedule. Its ticks are instants that all schedules of its chain name, and the server decides which of them are due: a
// tick is due when all jobs before have decided it and every earlier one, and no run of theirs goes on. If one of them did not end ok
// there is no tick.

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// chain replaces the schedule of a job that runs after others. Its ticks are those instants of their schedules at which all of them ended ok. The server
// decides which: a tick that one of them did not end ok is none of this job's, and its ledger has no entry for it.
type chain struct {
	after  []string             // the jobs right before it, sorted
	specs  []*cronspec.Schedule // of all jobs that it comes from in the end; its ticks are ticks of each: see named
	digest string               // changes with them, and with Job.After
	used   time.Time            // up to this tick the outcomes of the jobs before are not needed any more, as far as this replica knows
	opened time.Time            // the newest tick that was opened here
}

// chained returns whether a job runs after others.
func (j *Job) chained() bool { return len(j.After) > 0 }

// has returns whether all schedules of the chain have a tick at an instant.
func (c *chain) has(at time.Time) bool {
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { return !s.Has(at) })
}

// within is how long after an instant the next one of the chain is, at most limit.
func (c *chain) within(at time.Time, limit time.Duration) time.Duration {
	end := at.Add(limit)
	for next := at; ; {
		latest := next
		for _, spec := range c.specs {
			n := spec.Next(next)
			if n.IsZero() || !n.Before(end) {
				return limit
			}
			if n.After(latest) {
				latest = n
			}
		}
		if c.has(latest) {
			return latest.Sub(at)
		}
		next = latest.Add(-time.Second) // no schedule with a later instant has one before it
	}
}

// pending returns the ticks of a job that may be claimed again, though they are decided: their run goes on, or its holder is dead, or they were given
// back. The states of the jobs before it are no help: they may be of an earlier moment, at which such a tick was not due yet.
func pending(own election.State) []time.Time {
	ticks := slices.Clone(own.Open)
	for _, r := range slices.Concat(own.Running, own.Orphans) {
		if !r.Tick.IsZero() {
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// common is the ticks that all of some jobs have ended ok, oldest first, each due since the last of them has.
func common(states []election.State) (ticks []election.Ended) {
	due := map[time.Time]time.Time{}
	for i, st := range states {
		all := map[time.Time]time.Time{}
		for _, e := range st.Ended {
			if known, ok := due[e.Tick]; ok || i == 0 {
				all[e.Tick] = later(known, e.Due)
			}
		}
		due = all
	}
	for tick, since := range due {
		ticks = append(ticks, election.Ended{Tick: tick, Due: since})
	}
	slices.SortFunc(ticks, func(a, b election.Ended) int { return a.Tick.Compare(b.Tick) })
	return ticks
}

// afterFault returns the fault of a job that runs after others and has settings of a schedule, which it takes from them; "" if there is none.
func (j *Job) afterFault() string {
	if !j.chained() {
		return ""
	}
	for _, has := range []struct {
		name string
		set  bool
	}{
		{"Schedule", len(j.Schedule) > 0}, {"Location", j.Location != nil}, {"Except", len(j.Except) > 0}, {"ExceptDates", len(j.ExceptDates) > 0},
		{"StartsAt", !j.StartsAt.IsZero()}, {"ExpiresAt", !j.ExpiresAt.IsZero()}, {"Jitter", j.Jitter != 0}, {"CatchUp", j.CatchUp.Policy != CatchUpNone},
	} {
		if has.set {
			return "After does not go with " + has.name + ": the ticks are those of the jobs before"
		}
	}
	return ""
}
