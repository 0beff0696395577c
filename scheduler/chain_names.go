package scheduler

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A tick of a chain has the same name as the parents' ticks if all schedules name their ticks by the local time of the same zone. Otherwise the names
// of the parents differ, and ticks are matched by their instants. Each replica computes the instants from its own zone data.

// allNominal reports whether all schedules name their ticks by the local time of the same zone.
func allNominal(specs []*cronspec.Schedule) bool {
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool {
		return !s.Nominal() || !specs[0].Nominal() || s.Zone().String() != specs[0].Zone().String()
	})
}

// instantOf returns the instant of the tick with this name.
func (c *chain) instantOf(name time.Time) time.Time {
	if !allNominal(c.specs) {
		return name
	}
	at, _ := c.specs[0].Instant(name)
	return at
}

// hasTick reports whether all schedules of the chain have a tick with this name.
func (c *chain) hasTick(name time.Time) bool {
	if !allNominal(c.specs) {
		return c.hasInstant(name)
	}
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { _, ok := s.Instant(name); return !ok })
}

// nameFrom translates the name of a parent's tick to the name of the same tick in this chain. If the parent has no tick with this name, nameFrom
// returns the instant of the parent's last tick before it.
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

// nameFor translates the name of a tick of this chain to the name of the same tick in a parent.
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
