package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// chain is what a job that runs after others has instead of a schedule. Its ticks are those instants of their schedules at which all of them ended
// ok: the server tells which, so a tick that one of them did not end ok is none of this job's, and its ledger knows nothing of it.
type chain struct {
	after  []string             // the jobs right before it, sorted
	specs  []*cronspec.Schedule // of all jobs that it comes from in the end; its ticks are instants of each
	digest string               // changes with them, and with Job.After
	used   time.Time            // up to this tick the outcomes of the jobs before are not needed any more, as far as this replica knows
	opened time.Time            // the newest tick that was opened here
}

// chained tells whether a job runs after others.
func (j *Job) chained() bool { return len(j.After) > 0 }

// digest tells a job's schedule from others, for the server.
func (t *task) digest() string {
	if t.chained() {
		return t.chain.digest
	}
	return t.spec.Digest()
}

// key does the same for this process.
func (t *task) key() string {
	if t.chained() {
		return "after " + t.chain.digest
	}
	return t.spec.Key()
}

// follower is the name by which a job follows others. Replicas that disagree on what it comes from do not use up the outcomes that each other needs.
func (t *task) follower() string { return t.Name + "." + t.chain.digest }

// names tells whether an instant may be a tick of the job.
func (t *task) names(at time.Time) bool {
	if t.chained() {
		return t.chain.names(at)
	}
	return t.spec.Prev(at.Add(time.Nanosecond)).Equal(at)
}

func (c *chain) names(at time.Time) bool {
	return !slices.ContainsFunc(c.specs, func(s *cronspec.Schedule) bool { return !s.Next(at.Add(-time.Second)).Equal(at) })
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
		if c.names(latest) {
			return latest.Sub(at)
		}
		next = latest.Add(-time.Second) // no schedule with a later instant has one before it
	}
}

// follows tells whether some job needs to know how a tick ends.
func (t *task) follows(tick time.Time) bool {
	return !tick.IsZero() && slices.ContainsFunc(t.children, func(c *task) bool { return c.chain.names(tick) })
}

// deadlineAfter is the instant until which a tick may start that is due since the jobs before it have ended.
func (t *task) deadlineAfter(tick, since time.Time) time.Time {
	switch {
	case t.StartDeadline > 0:
		return since.Add(t.StartDeadline)
	case t.Overlap == OverlapQueue:
		return since.Add(longestAuto)
	}
	return since.Add(t.chain.within(tick, longestAuto))
}

// checkedBatch is what the cluster knows of some jobs, and of those that they run after.
type checkedBatch struct {
	tasks  []*task
	after  []*chain           // what each was asked about
	states [][]election.State // of the job itself, and then of those before it
}

// mustCheck is how often a job that runs after others is looked at though nobody has told of anything: words get lost.
const mustCheck = time.Minute

// check looks at an instant whether there are ticks of a job that runs after others.
func (s *Scheduler) check(t *task, at time.Time) {
	if s.leaving || t.dismissed {
		return
	}
	if known, ok := t.inChecks.when(); !ok || at.Before(known) {
		s.checks.set(&t.inChecks, at)
	}
}

// checkAfter does so at once for the jobs that run after one of which a tick may have ended.
func (s *Scheduler) checkAfter(t *task, now time.Time) {
	for _, c := range t.children {
		s.check(c, now)
	}
}

// followUp looks at the jobs whose check is due, all in one batch.
func (s *Scheduler) followUp(ctx context.Context, now time.Time) {
	if s.checking {
		return
	}
	var b checkedBatch
	var inquiries []election.Inquiry
	for _, t := range s.checks.take(now, maxClaims) {
		if t.dismissed || !t.chained() {
			continue
		}
		b.tasks, b.after = append(b.tasks, t), append(b.after, t.chain)
		inquiries = append(inquiries, election.Inquiry{Job: t.Name})
		for _, name := range t.chain.after {
			inquiries = append(inquiries, election.Inquiry{Job: name, Follower: t.follower(), Used: t.chain.used})
		}
	}
	if len(b.tasks) == 0 {
		return
	}
	s.checking = true
	go func() {
		states, _ := s.look(context.WithoutCancel(ctx), inquiries) // what could not be buried is still there at the next check
		for _, c := range b.after {
			n := 1 + len(c.after)
			b.states, states = append(b.states, states[:n]), states[n:]
		}
		s.checked <- b
	}()
}

// settleChecks opens the ticks that have come due.
func (s *Scheduler) settleChecks(b checkedBatch) {
	s.checking = false
	now := s.now()
	for i, t := range b.tasks {
		failed := slices.ContainsFunc(b.states[i], func(st election.State) bool { return st.Err != nil })
		switch {
		case t.dismissed || !t.chained():
		case t.chain != b.after[i]: // it was edited meanwhile
			s.check(t, now)
		case failed:
			s.check(t, now.Add(longestPause))
		case t.unknown: // the jobs before know that it follows them: from now on they keep for it what it may need
			s.watch(t, now)
		default:
			s.watchChained(t, b.states[i], now)
			s.openChained(t, b.states[i], now)
		}
	}
}

// watchChained sees to it that the job is looked at when the runs that were seen may have ended.
func (s *Scheduler) watchChained(t *task, states []election.State, now time.Time) {
	s.check(t, now.Add(mustCheck))
	for i, st := range states {
		of := t
		if i > 0 {
			of = s.tasks[t.chain.after[i-1]]
		}
		s.watchRunning(of, st)
		s.inherit(of, st, now)
		if len(st.Orphans) > 0 { // they hold up what comes after them until they are buried, or carried on
			s.check(t, now.Add(longestPause))
		}
	}
}

// openChained opens the ticks of a job that are due and undecided. They stay with the server until they are decided, and their runs have ended (one may be
// given back until then), so what is too much now comes with a later check.
func (s *Scheduler) openChained(t *task, states []election.State, now time.Time) {
	own, before := states[0], states[1:]
	used, previous := before[0].Through, own.Decided
	for _, st := range before[1:] {
		used = earlier(used, st.Through)
	}
	used = later(used, own.Decided)
	starts := t.chain.opened.IsZero()
	for _, e := range common(before) {
		again := slices.ContainsFunc(own.Open, e.Tick.Equal)
		if !again && !e.Tick.After(own.Decided) {
			continue
		}
		used = earlier(used, e.Tick.Add(-time.Second))
		if _, open := t.find(e.Tick); !open && len(t.open) < maxOpen && (again || e.Tick.After(t.chain.opened)) {
			k := s.agenda.open(t, instants{at: e.Tick, previous: earlier(previous, e.Tick.Add(-time.Second)), since: e.Due}, now)
			t.chain.opened = later(t.chain.opened, e.Tick)
			if starts && k.waited {
				k.reason = "down"
			}
		}
		previous = e.Tick
	}
	for _, tick := range pending(own) {
		used = earlier(used, tick.Add(-time.Second))
	}
	t.chain.used = used
}

// pending is the ticks of a job that may be asked for again, though they are decided: their run goes on, or its holder is dead, or they were given back. What
// the jobs before it have told is no help: it may be of an earlier moment, at which such a tick was not due yet.
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
