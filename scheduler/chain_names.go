package scheduler

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// The ticks of a chain have the names of those before them if these are all local times of one zone. Otherwise the jobs before have no names
// in common, and their ticks are matched by instants, each by this replica's zone data.

// nominal returns whether the ticks of some schedules are all local times of one zone.
func nominal(specs []*cronspec.Schedule) bool {
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool {
		return !s.Nominal() || !specs[0].Nominal() || s.Zone().String() != specs[0].Zone().String()
	})
}

// instant returns the instant of a tick of the chain.
func (c *chain) instant(name time.Time) time.Time {
	if !nominal(c.specs) {
		return name
	}
	at, _ := c.specs[0].Instant(name)
	return at
}

// names returns whether all schedules of the chain have a tick.
func (c *chain) names(name time.Time) bool {
	if !nominal(c.specs) {
		return c.has(name)
	}
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { _, ok := s.Instant(name); return !ok })
}

// from returns the name in this chain of a tick of a job before it. A name that is none of that job's ticks stands for those up to it.
func (c *chain) from(before *task, name time.Time) time.Time {
	if nominal(c.specs) || name.IsZero() {
		return name
	}
	if before.chained() {
		return before.chain.instant(name)
	}
	if at, ok := before.Spec.Instant(name); ok || !before.Spec.Nominal() {
		return at
	}
	return before.Spec.UpTo(name)
}

// to returns the name for a job before it of a tick of this chain.
func (c *chain) to(before *task, name time.Time) time.Time {
	specs := []*cronspec.Schedule{before.Spec}
	if before.chained() {
		specs = before.chain.specs
	}
	if nominal(c.specs) || name.IsZero() || !nominal(specs) {
		return name
	}
	return specs[0].IDAt(name)
}
