package scheduler

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// The ticks of a chain have the names of the parents' ticks if all of these are local times of one zone. Otherwise the parents have no names in
// common, and their ticks are matched by their instants, which each replica computes from its own zone data.

// nominal reports whether the ticks of all schedules are local times of one zone.
func nominal(specs []*cronspec.Schedule) bool {
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool {
		return !s.Nominal() || !specs[0].Nominal() || s.Zone().String() != specs[0].Zone().String()
	})
}

// instant returns the instant of the tick with a name.
func (c *chain) instant(name time.Time) time.Time {
	if !nominal(c.specs) {
		return name
	}
	at, _ := c.specs[0].Instant(name)
	return at
}

// names reports whether all schedules of the chain have a tick with a name.
func (c *chain) names(name time.Time) bool {
	if !nominal(c.specs) {
		return c.has(name)
	}
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { _, ok := s.Instant(name); return !ok })
}

// from translates the name of a parent's tick to the name in this chain. A name that is not a tick of the parent stands for all its ticks up to that
// name: the result is then the instant of the last of them.
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

// to translates the name of a tick of this chain to the name in a parent.
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
