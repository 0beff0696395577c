package scheduler

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// A core is the state that the parts of the loop share: the jobs, their open ticks, and the times of their next inspections and checks.
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

// now returns the server's clock as far as it is known, otherwise the clock of this replica.
func (c *core) now() time.Time {
	if c.cfg.Claimer != nil {
		if t, ok := c.cfg.Claimer.Now(); ok {
			return t
		}
	}
	return c.cfg.Clock()
}

// inspectAt schedules the inspection of a job just after an instant, such as the end of another replica's lease. A replica that is leaving inspects
// nothing: the others do.
func (c *core) inspectAt(t *task, until time.Time) {
	if until.IsZero() || c.leaving {
		return
	}
	at := until.Add(inspectMargin)
	if known, ok := t.inInspections.When(); !ok || at.Before(known) {
		c.toInspect.Set(&t.inInspections, at)
	}
}

// checkAt schedules a look for new ticks of a job that runs after others.
func (c *core) checkAt(t *task, at time.Time) {
	if c.leaving || t.dismissed {
		return
	}
	if known, ok := t.inChecks.When(); !ok || at.Before(known) {
		c.toCheck.Set(&t.inChecks, at)
	}
}

// checkAfter checks the children of a job now, because a tick of the job may have ended.
func (c *core) checkAfter(t *task, now time.Time) {
	for _, child := range t.children {
		c.checkAt(child, now)
	}
}

// wakeParked claims parked ticks, because ticks of the changed jobs were decided or places became free.
func (c *core) wakeParked(now time.Time, changed ...*task) {
	if c.leaving {
		return
	}
	for _, t := range changed {
		c.agenda.Wake(&t.line, c.places.free(), now)
	}
	c.agenda.WakeStarved(c.places.free(), now)
}

// giveUp closes a tick that may be undecided. A claim under way keeps its place until it is answered, because a withdrawal at the same time could
// give back what the claim is granted.
func (c *core) giveUp(k *tick, dropped bool) {
	if c.agenda.GiveUp(k, dropped) {
		return
	}
	c.withdrawClaim(k)
	c.places.unplaceTick(k)
}

// withdrawClaim gives back the grant that an unanswered claim of the tick may have had, or may still get.
func (c *core) withdrawClaim(k *tick) {
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

// forgetAcked drops the settlements that the server has acknowledged, and those whose records could not be written: the next inspection of any
// replica records them again.
func (c *core) forgetAcked(t *task, ticks []time.Time, now time.Time) {
	t.unacked = slices.DeleteFunc(t.unacked, func(u unacked) bool {
		return slices.ContainsFunc(ticks, u.tick.Equal) || slices.ContainsFunc(u.written, (*receipt).failed)
	})
	if len(t.unacked) > 0 {
		c.inspectAt(t, now.Add(ackDelay))
	}
}

// inspectRunning schedules inspections for the ends of the leases of running runs. If a run may not have begun yet, the inspection is earlier: see
// [core.inspectTaken].
func (c *core) inspectRunning(t *task, st election.State) {
	for _, r := range st.Running {
		until := r.Expires
		if decided := t.startDecided(time.UnixMicro(r.Token), until); decided.After(st.Now) {
			until = decided
		}
		c.inspectAt(t, until)
	}
}

// logDamage logs a damaged lock, at most once a minute for each job.
func (c *core) logDamage(t *task, err error, now time.Time) {
	if now.Before(t.quietUntil) {
		return
	}
	t.quietUntil = now.Add(time.Minute)
	c.log.Error("damaged job data in Redis; ticks wait", "job", t.Name, "error", err)
}

// collectAll opens all due ticks.
func (c *core) collectAll(now time.Time) {
	for {
		c.fallBehind(c.agenda.Collect(now), now)
		if at, ok := c.agenda.Next(); !c.agenda.More() && (!ok || at.After(now)) {
			return
		}
	}
}

// rebuildTimeline rebuilds the timeline. All ticks that are due by now must be open.
func (c *core) rebuildTimeline(now time.Time) {
	c.agenda.Clear()
	for _, t := range c.tasks {
		if !t.unknown && !t.isChained() {
			c.agenda.Enter(&t.line, now)
		}
	}
}

// fallBehind gives up ticks because there were too many open ones. The next inspection settles them.
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
	c.wakeParked(now, tasksOf(given)...)
}

// inspectTaken schedules the inspection of a tick that another replica won. That replica may give the tick back because it cannot start the run, and
// on a quorum nothing publishes that. So the inspection does not wait for the end of the lease: it comes when the start must have been decided, or
// while the tick may still be started.
func (c *core) inspectTaken(k *tick, until, now time.Time) {
	until = jobOf(k).startDecided(now, until)
	if left := k.Deadline.Sub(now); left > 0 {
		until = earlier(until, k.Deadline.Add(-min(left/2, startMargin)))
	}
	c.inspectAt(taskOf(k), until)
}

// startMargin is the time for one replica to give a tick back, and for another to claim it.
const startMargin = time.Second

// startDecided returns the instant by which a run that was granted at some instant has begun or was given back, or the end of its lease if that is
// earlier.
func (j *Job) startDecided(granted, expires time.Time) time.Time {
	if j.StartTimeout == 0 {
		return expires
	}
	return earlier(expires, granted.Add(j.StartTimeout+startMargin))
}
