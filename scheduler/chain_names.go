package scheduler

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// The ticks of a chain have the names of the parents' ticks if all of these are local times of one zone. Otherwise the parents have no names in
// common, and their ticks are matched by their instants, which each replica computes from its own zone data.

// allNominal reports whether the ticks of all schedules are local times of one zone.
func allNominal(specs []*cronspec.Schedule) bool {
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool {
		return !s.Nominal() || !specs[0].Nominal() || s.Zone().String() != specs[0].Zone().String()
	})
}

// instantOf returns the instant of the tick with a name.
func (c *chain) instantOf(name time.Time) time.Time {
	if !allNominal(c.specs) {
		return name
	}
	at, _ := c.specs[0].Instant(name)
	return at
}

// hasTick reports whether all schedules of the chain have a tick with a name.
func (c *chain) hasTick(name time.Time) bool {
	if !allNominal(c.specs) {
		return c.hasInstant(name)
	}
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { _, ok := s.Instant(name); return !ok })
}

// nameFrom translates the name of a parent's tick to the name in this chain. A name that is not a tick of the parent stands for all its ticks up to that
// name: the result is then the instant of the last of them.
func (c *chain) nameFrom(before *task, name time.Time) time.Time {
	if allNominal(c.specs) || name.IsZero() {
		return name
	}
	if before.isChained() {
		return before.chain.instantOf(name)
	}
	if at, ok := before.Spec.Instant(name); ok || !before.Spec.Nominal() {
		return at
	}
	return before.Spec.UpTo(name)
}

// nameFor translates the name of a tick of this chain to the name in a parent.
func (c *chain) nameFor(before *task, name time.Time) time.Time {
	specs := []*cronspec.Schedule{before.Spec}
	if before.isChained() {
		specs = before.chain.specs
	}
	if allNominal(c.specs) || name.IsZero() || !allNominal(specs) {
		return name
	}
	return specs[0].IDAt(name)
}
