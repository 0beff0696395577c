package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Chains: a job with After (a child) has no schedule of its own. Its ticks are instants that the schedules of all its ancestors have in common. It runs once
// for such an instant if, for each parent, the tick at this instant ended with the outcome ok. Otherwise the child has no tick at this instant.
//
// A tick of a child becomes due when Redis shows, for each parent, that this tick and all earlier ticks are decided and that their runs have ended.

// A chain takes the place of the schedule of a child. The child's ledger in Redis, its record of decided ticks, has no entry for a common instant at which
// the child has no tick.
type chain struct {
	after  []string             // names of the parents, sorted
	specs  []*cronspec.Schedule // the schedules of all ancestors that have one; each tick of the chain is a tick of all of them
	digest string               // a hash of after and specs, which identifies the chain in Redis
	used   time.Time            // the newest tick for which this replica no longer needs the outcomes of the parents
	opened time.Time            // the newest tick that this replica has opened
}

func (c *chain) hasInstant(at time.Time) bool {
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { return !s.Has(at) })
}

// untilNext returns the time from at to the next common instant of the schedules. It returns at most limit.
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
		next = latest.Add(-time.Second) // no common instant lies between at and latest; latest itself is examined next
	}
}

// pendingTicks returns the decided ticks of a job that may be claimed again, because their run has not ended, their run is an orphan, or their grant was
// given back. It uses only own, the state of the job: the states of the parents may have been read earlier, and may not show these ticks.
func pendingTicks(own election.State) []time.Time {
	ticks := slices.Clone(own.Open)
	for _, r := range slices.Concat(own.Running, own.Orphans) {
		if !r.Tick.IsZero() {
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// commonTicks returns the ticks that ended ok for all parents, oldest first. states are the states of the parents. A tick's Due is the latest Due of all
// parents.
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

func linkTasks(tasks map[string]*task) error {
	l := linker{tasks: tasks, specs: map[*task][]*cronspec.Schedule{}}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		if t := tasks[name]; t != nil {
			l.visitTask(t)
		}
	}
	linkChildren(tasks)
	return errors.Join(l.faults...)
}

func linkChildren(tasks map[string]*task) {
	for _, t := range tasks {
		if t != nil {
			t.children = nil
		}
	}
	for _, t := range tasks {
		if t == nil || !t.isChained() {
			continue
		}
		for _, name := range t.chain.after {
			if before := tasks[name]; before != nil {
				before.children = append(before.children, t)
			}
		}
	}
}

// A linker walks from each job to its ancestors. It collects their schedules and finds cycles.
type linker struct {
	tasks  map[string]*task
	specs  map[*task][]*cronspec.Schedule // the schedules of each visited task
	path   []string                       // the names of the tasks from the start of the walk to the current task
	faults []error
}

func (l *linker) addFault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
}

// visitTask sets the chain of t and of its ancestors. It returns t's schedule, or for a child its ancestors' schedules, sorted and without duplicates.
func (l *linker) visitTask(t *task) []*cronspec.Schedule {
	specs, done := l.specs[t]
	switch from := slices.Index(l.path, t.Name); {
	case done:
		return specs
	case from >= 0:
		l.addFault("job %s: After forms a cycle: %s", t.Name, strings.Join(append(slices.Clone(l.path[from:]), t.Name), ", "))
		return nil
	case !t.isChained():
		return []*cronspec.Schedule{t.Spec}
	}
	l.path = append(l.path, t.Name)
	after := slices.Compact(slices.Sorted(slices.Values(t.After)))
	for _, name := range after {
		before, known := l.tasks[name]
		if !known {
			l.addFault("job %s: After names %q, and there is no such job", t.Name, name)
		}
		if before != nil { // an invalid parent is nil, and its fault was reported by newTask
			specs = append(specs, l.visitTask(before)...)
		}
	}
	l.path = l.path[:len(l.path)-1]
	slices.SortFunc(specs, func(a, b *cronspec.Schedule) int { return cmp.Compare(a.Key(), b.Key()) })
	specs = slices.CompactFunc(specs, func(a, b *cronspec.Schedule) bool { return a.Key() == b.Key() })
	l.specs[t] = specs
	t.chain = &chain{after: after, specs: specs, digest: digestOf(after, specs)}
	return specs
}

func digestOf(after []string, specs []*cronspec.Schedule) string {
	text := "after " + strings.Join(after, ", ")
	for _, s := range specs {
		text += "\n" + s.Key()
	}
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:8])
	if allNominal(specs) {
		zone, _, _ := strings.Cut(specs[0].Digest(), ".")
		return zone + "." + digest
	}
	return digest
}

// The name of a tick is a time that identifies the tick on every replica: see [cronspec.Schedule.ID]. If all schedules of a chain name their ticks by the
// local time of the same zone, each tick of the chain has the same name as the parents' ticks. Otherwise the parents may have different names for one tick,
// so the chain names its ticks by their instants. Each replica computes these instants from its own zone data.

// allNominal reports whether all schedules name their ticks by the local time of the same zone.
func allNominal(specs []*cronspec.Schedule) bool {
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool {
		return !s.Nominal() || !specs[0].Nominal() || s.Zone().String() != specs[0].Zone().String()
	})
}

func (c *chain) instantOf(name time.Time) time.Time {
	if !allNominal(c.specs) {
		return name
	}
	at, _ := c.specs[0].Instant(name)
	return at
}

func (c *chain) hasTick(name time.Time) bool {
	if !allNominal(c.specs) {
		return c.hasInstant(name)
	}
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { _, ok := s.Instant(name); return !ok })
}

// nameFrom translates the name of a parent's tick to the name of the same tick in this chain. If the parent has no tick with this name, nameFrom
// returns the instant of the parent's last tick with an earlier name.
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
