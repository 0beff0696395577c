package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A checkBatch has the states of some children (jobs with After) and of their parents.
type checkBatch struct {
	tasks  []*task
	after  []*chain           // the chain of each task at the time of the request; a reload may replace it
	states [][]election.State // for each task its own state, then the states of its parents
}

// checks finds the due ticks of children, in batches.
type checks struct {
	*core
	lane[*task, checkBatch]
	recoveries *recoveries
	inspector  *inspector
}

// mustCheck is the longest interval between two checks of a child. Without it, a lost event about a parent would delay the child's tick without limit.
const mustCheck = time.Minute

func (c *checks) followUp(ctx context.Context, now time.Time) {
	if c.busy {
		return
	}
	var b checkBatch
	var requests []election.InspectRequest
	for _, t := range c.due.Take(now, maxClaims) {
		if t.dismissed || !t.isChained() {
			continue
		}
		b.tasks, b.after = append(b.tasks, t), append(b.after, t.chain)
		requests = append(requests, election.InspectRequest{Lock: election.JobLock(t.Name)})
		for _, name := range t.chain.after {
			used := t.chain.used
			if before := c.tasks[name]; before != nil {
				used = t.chain.nameFor(before, used)
			}
			requests = append(requests, election.InspectRequest{Lock: election.JobLock(name), Follower: t.followerName(), Used: used})
		}
	}
	if len(b.tasks) == 0 {
		return
	}
	c.sendBatch(b, func(b *checkBatch) {
		states, _ := c.inspector.inspectJobs(context.WithoutCancel(ctx), requests) // errors in deleting orphans are ignored, because the next check finds these orphans again
		for _, chain := range b.after {
			n := 1 + len(chain.after)
			b.states, states = append(b.states, states[:n]), states[n:]
		}
	})
}

func (c *checks) settleChecks(b checkBatch) {
	c.busy = false
	now := c.now()
	for i, t := range b.tasks {
		failed := slices.ContainsFunc(b.states[i], func(st election.State) bool { return st.Err != nil })
		switch {
		case t.dismissed || !t.isChained():
		case t.chain != b.after[i]: // a reload changed the job while the batch was under way
			c.checkAt(t, now)
		case failed:
			c.logFailed(t, b.states[i], now)
			c.checkAt(t, now.Add(longestPause))
		case t.unknown: // Redis has registered the child and now keeps the parents' outcomes for it; the inspection announces its schedule
			c.inspectAt(t, now)
		default:
			c.inspectChained(t, b.states[i], now)
			c.openChained(t, b.states[i], now)
		}
	}
}

// logFailed logs why the check of a child fails, with the job whose lock refuses it, if it is not for the whole server.
func (c *checks) logFailed(t *task, states []election.State, now time.Time) {
	for i, st := range states {
		of := t
		if i > 0 {
			of = c.tasks[t.chain.after[i-1]]
		}
		if of != nil && st.Err != nil && (isDamaged(st.Err) || !errors.Is(st.Err, election.ErrUnknown)) {
			c.logRefused(of, st.Err, now)
		}
	}
}

// inspectChained schedules the next check of a child. It also schedules inspections of the child and its parents for the times at which the leases of
// their runs end.
func (c *checks) inspectChained(t *task, states []election.State, now time.Time) {
	c.checkAt(t, now.Add(mustCheck))
	for i, st := range states {
		of := t
		if i > 0 {
			of = c.tasks[t.chain.after[i-1]]
		}
		c.inspectRunning(of, st)
		c.recoveries.enqueueOrphans(of, st, now)
		if len(st.Orphans) > 0 { // children wait until the orphans are deleted or recovered
			c.checkAt(t, now.Add(longestPause))
		}
	}
}

// inChain returns the states of the parents, with the names that the chain has for their ticks. A parent in another time zone may name the same instant by
// another local time.
func (c *checks) inChain(of *chain, states []election.State) []election.State {
	in := slices.Clone(states)
	for i, st := range states {
		before := c.tasks[of.after[i]]
		if before == nil {
			continue
		}
		in[i].Through, in[i].Ended = of.nameFrom(before, st.Through), slices.Clone(st.Ended)
		for n, e := range st.Ended {
			in[i].Ended[n].Tick = of.nameFrom(before, e.Tick)
		}
	}
	return in
}

// openChained opens the due and undecided ticks of a child, up to agenda.MaxOpen. A later check opens the rest. openChained also sets chain.used, so that
// Redis keeps the outcomes of the parents until the child's runs have ended. Before that, a grant may be given back, and its tick is opened again.
func (c *checks) openChained(t *task, states []election.State, now time.Time) {
	own, before := states[0], c.inChain(t.chain, states[1:])
	used, previous := before[0].Through, own.Decided
	for _, st := range before[1:] {
		used = earlier(used, st.Through)
	}
	used = later(used, own.Decided)
	starts := t.chain.opened.IsZero()
	for _, e := range commonTicks(before) {
		again := slices.ContainsFunc(own.Open, e.Tick.Equal)
		if !again && !e.Tick.After(own.Decided) {
			continue
		}
		used = earlier(used, e.Tick.Add(-time.Second))
		if _, open := t.Find(e.Tick); !open && len(t.Open) < agenda.MaxOpen && (again || e.Tick.After(t.chain.opened)) {
			k := c.agenda.Open(&t.line, agenda.Instants{At: t.chain.instantOf(e.Tick), Name: e.Tick, Previous: earlier(previous, e.Tick.Add(-time.Second)), Since: e.Due}, now)
			t.chain.opened = later(t.chain.opened, e.Tick)
			if starts && k.Waits() {
				k.Cause.Reason = run.ReasonDown
			}
		}
		previous = e.Tick
	}
	for _, tick := range pendingTicks(own) {
		used = earlier(used, tick.Add(-time.Second))
	}
	t.chain.used = used
}
