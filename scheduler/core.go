package scheduler

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// core is the state that the parts of the loop share: the jobs, their open ticks, and when each job is to be looked at.
type core struct {
	cfg  Config
	log  hclog.Logger
	exec *executor

	tasks     map[string]*task
	agenda    agenda.Agenda
	places    places
	published publisher
	toInspect agenda.Queue[*task] // jobs that other replicas run
	toCheck   agenda.Queue[*task] // jobs that run after others
	leaving   bool                // the drain has begun
}

// now is the server's clock as far as it is known, else the replica's own.
func (c *core) now() time.Time {
	if c.cfg.Claimer != nil {
		if t, ok := c.cfg.Claimer.Now(); ok {
			return t
		}
	}
	return c.cfg.Clock()
}

// inspectAt looks at a job just after an instant, when the lease of another replica's run has ended unless it is renewed. A
// replica that leaves leaves that to the others.
func (c *core) inspectAt(t *task, until time.Time) {
	if until.IsZero() || c.leaving {
		return
	}
	at := until.Add(inspectMargin)
	if known, ok := t.inInspections.When(); !ok || at.Before(known) {
		c.toInspect.Set(&t.inInspections, at)
	}
}

// check looks at an instant whether there are ticks of a job that runs after others.
func (c *core) check(t *task, at time.Time) {
	if c.leaving || t.dismissed {
		return
	}
	if known, ok := t.inChecks.When(); !ok || at.Before(known) {
		c.toCheck.Set(&t.inChecks, at)
	}
}

// checkAfter does so at once for the jobs that run after one of which a tick may have ended.
func (c *core) checkAfter(t *task, now time.Time) {
	for _, child := range t.children {
		c.check(child, now)
	}
}

// wake claims the ticks that were put aside, now that some ticks are decided or places are free.
func (c *core) wake(now time.Time, changed ...*task) {
	if c.leaving {
		return
	}
	for _, t := range changed {
		c.agenda.Wake(&t.line, c.places.free(), now)
	}
	c.agenda.WakeStarved(c.places.free(), now)
}

// giveUp closes a tick that may be undecided. A claim that is under way keeps its place until it is answered: a withdrawal
// beside it might give back what it brings.
func (c *core) giveUp(k *tick, dropped bool) {
	if c.agenda.GiveUp(k, dropped) {
		return
	}
	c.withdraw(k)
	c.places.unplace(k)
}

// withdraw gives back the grant that a claim without an answer may have had, or may yet have.
func (c *core) withdraw(k *tick) {
	if k.Doubted {
		c.cfg.Claimer.Withdraw(c.claimFor(k))
	}
}

// ackWhenWritten acknowledges the settlements up to a tick to the server as soon as their records are written.
func (c *core) ackWhenWritten(t *task, tick, now time.Time, written ...*receipt) {
	t.unacked = append(t.unacked, unacked{tick, written})
	t.unacked = slices.Clone(t.unacked[max(len(t.unacked)-maxUnacked, 0):])
	c.inspectAt(t, now.Add(ackDelay))
}

// forgetAcked drops the settlements that the server has acknowledged, and those that could not be written: the next inspection of any replica records
// these again.
func (c *core) forgetAcked(t *task, ticks []time.Time, now time.Time) {
	t.unacked = slices.DeleteFunc(t.unacked, func(u unacked) bool {
		return slices.ContainsFunc(ticks, u.tick.Equal) || slices.ContainsFunc(u.written, (*receipt).failed)
	})
	if len(t.unacked) > 0 {
		c.inspectAt(t, now.Add(ackDelay))
	}
}

// inspectRunning looks again at runs when their leases would have ended, and before at those that may not have begun: see [core.inspectTaken].
func (c *core) inspectRunning(t *task, st election.State) {
	for _, r := range st.Running {
		until := r.Expires
		if decided := t.startDecided(time.UnixMicro(r.Token), until); decided.After(st.Now) {
			until = decided
		}
		c.inspectAt(t, until)
	}
}

// logDamage logs a damaged lock once a minute for each job.
func (c *core) logDamage(t *task, err error, now time.Time) {
	if now.Before(t.quietUntil) {
		return
	}
	t.quietUntil = now.Add(time.Minute)
	c.log.Error("damaged job data in Redis; ticks wait", "job", t.Name, "error", err)
}

// collectAll opens all ticks that are due.
func (c *core) collectAll(now time.Time) {
	for {
		c.fallBehind(c.agenda.Collect(now), now)
		if at, ok := c.agenda.Next(); !c.agenda.More() && (!ok || at.After(now)) {
			return
		}
	}
}

// replan builds the timeline anew. All that is due by now must be open.
func (c *core) replan(now time.Time) {
	c.agenda.Clear()
	for _, t := range c.tasks {
		if !t.unknown && !t.chained() {
			c.agenda.Enter(&t.line, now)
		}
	}
}

// fallBehind makes the best of ticks that were given up: there were too many open ones.
func (c *core) fallBehind(given []*tick, now time.Time) {
	if len(given) == 0 {
		return
	}
	for _, k := range given {
		t := taskOf(k)
		t.Behind = orDefault(t.Behind, k.Cause.Reason)
		c.inspectAt(t, now)
		c.giveUp(k, false)
	}
	c.wake(now, tasksOf(given)...)
}

// inspectTaken looks again at a tick that another replica has. That replica may give it back since it cannot start the run, and on a quorum nothing
// publishes that. So the look is not left until the lease would have ended: it comes when the start is decided, or while the tick may still be started.
func (c *core) inspectTaken(k *tick, until, now time.Time) {
	until = jobOf(k).startDecided(now, until)
	if left := k.Deadline.Sub(now); left > 0 {
		until = earlier(until, k.Deadline.Add(-min(left/2, startMargin)))
	}
	c.inspectAt(taskOf(k), until)
}

// startMargin is for a replica that gives a tick back, and for another that takes it up.
const startMargin = time.Second

// startDecided is when it is known whether a run that was granted at some instant has begun, or when its lease ends if that is before.
func (j *Job) startDecided(granted, expires time.Time) time.Time {
	if j.StartTimeout == 0 {
		return expires
	}
	return earlier(expires, granted.Add(j.StartTimeout+startMargin))
}
