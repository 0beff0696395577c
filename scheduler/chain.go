package scheduler

// Chains (After): a job runs once for each tick that all its parents ended ok.
//
// Such a job has no schedule of its own. Its ticks are the instants that all schedules of its chain have in common, and the server decides which of
// them are due: a tick is due when every parent has decided it and all earlier ticks, and all their runs have ended. If one parent did not end ok,
// there is no tick.

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A chain replaces the schedule of a job that runs after others. Its ticks are the common instants of their schedules at which all parents ended ok.
// The server decides which these are. A tick that a parent did not end ok is not a tick of this job, and its ledger has no entry for it.
type chain struct {
	after  []string             // names of the parents, sorted
	specs  []*cronspec.Schedule // the schedules of all ancestors that have one; a tick of the chain is a tick of each: see named
	digest string               // identifies the parents and specs
	used   time.Time            // the newest tick up to which the outcomes of the parents are no longer needed, as far as this replica knows
	opened time.Time            // the newest tick that was opened here
}

// isChained reports whether the job runs after others.
func (j *Job) isChained() bool { return len(j.After) > 0 }

// hasInstant reports whether all schedules of the chain have a tick at an instant.
func (c *chain) hasInstant(at time.Time) bool {
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { return !s.Has(at) })
}

// untilNext returns the time from an instant to the next common instant of the schedules, at most limit.
func (c *chain) untilNext(at time.Time, limit time.Duration) time.Duration {
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
		if c.hasInstant(latest) {
			return latest.Sub(at)
		}
		next = latest.Add(-time.Second) // no common instant lies before latest
	}
}

// pendingTicks returns the decided ticks of a job that may be claimed again: their run is still going, its holder is dead, or they were given back. It
// does not use the states of the parents, which may be of an earlier moment, at which such a tick was not due yet.
func pendingTicks(own election.State) []time.Time {
	ticks := slices.Clone(own.Open)
	for _, r := range slices.Concat(own.Running, own.Orphans) {
		if !r.Tick.IsZero() {
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// commonTicks returns the ticks that all of some jobs ended ok, oldest first. Each is due from the moment at which the last job ended it.
func commonTicks(states []election.State) (ticks []election.Ended) {
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

// afterFault returns why a job that runs after others is invalid: it sets something that it takes from its parents. It returns "" if nothing is
// wrong.
func (j *Job) afterFault() string {
	if !j.isChained() {
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
