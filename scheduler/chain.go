package scheduler

// Chains (After): a job runs once for each tick that all its parents ended ok.
//
// Such a job (a child) has no schedule of its own. The candidates for its ticks are the instants that the schedules of all its ancestors have in
// common. A candidate becomes due when this tick and all earlier ticks of every parent are decided and their runs have ended, according to the data
// in Redis. If the tick of one parent did not end ok, the child has no tick.

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A chain replaces the schedule of a child. Its ticks are the common instants of its ancestors' schedules at which all parents ended ok. A tick that
// did not end ok for a parent is not a tick of the child, and the child's ledger in Redis has no entry for it.
type chain struct {
	after  []string             // names of the parents, sorted
	specs  []*cronspec.Schedule // the schedules of all ancestors that have one; a tick of the chain is a tick of each
	digest string               // identifies the parents and specs
	used   time.Time            // up to this tick, this replica no longer needs the outcomes of the parents
	opened time.Time            // the newest tick that this replica has opened
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

// pendingTicks returns the decided ticks of a job that may be claimed again: their run has not ended, their run is an orphan, or their grant was
// given back. It uses only the state of the job itself. The states of the parents may be older, from before such a tick was due.
func pendingTicks(own election.State) []time.Time {
	ticks := slices.Clone(own.Open)
	for _, r := range slices.Concat(own.Running, own.Orphans) {
		if !r.Tick.IsZero() {
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// commonTicks returns the ticks that ended ok for all of some jobs, oldest first. Each tick is due from the time at which it ended for the last of
// these jobs.
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

// afterFault returns the fault of a child that sets a field which it inherits from its parents, or "" if there is none.
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
