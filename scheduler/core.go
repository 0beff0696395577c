package scheduler

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A core is the state that the parts of the loop share: the jobs, their open ticks, and the times of their next inspections and checks.
type core struct {
	cfg  Config
	log  hclog.Logger
	exec *run.Executor

	tasks     map[string]*task
	agenda    agenda.Agenda[*task]
	places    places
	published publisher
	toInspect agenda.Queue[*task] // jobs whose state in Redis is to be read
	toCheck   agenda.Queue[*task] // children whose due ticks are to be found
	leaving   bool                // the drain has begun
}

// now returns the time of Redis' clock, or the time of this replica's clock until the clock of Redis is known.
func (c *core) now() time.Time {
	if c.cfg.Claimer != nil {
		if t, ok := c.cfg.Claimer.Now(); ok {
			return t
		}
	}
	return c.cfg.Clock()
}

const (
	maxInspections = 1000
	inspectMargin  = 10 * time.Millisecond
)

// inspectAt schedules an inspection of a job just after an instant, such as the end of another replica's lease. In a drain it does nothing, because
// the other replicas inspect the job.
func (c *core) inspectAt(t *task, until time.Time) {
	if until.IsZero() || c.leaving {
		return
	}
	at := until.Add(inspectMargin)
	if known, ok := t.inInspections.When(); !ok || at.Before(known) {
		c.toInspect.Set(&t.inInspections, at)
	}
}

func (c *core) checkAt(t *task, at time.Time) {
	if c.leaving || t.dismissed {
		return
	}
	if known, ok := t.inChecks.When(); !ok || at.Before(known) {
		c.toCheck.Set(&t.inChecks, at)
	}
}

// checkAfter schedules checks of a job's children now, because a tick of the job may have ended.
func (c *core) checkAfter(t *task, now time.Time) {
	for _, child := range t.children {
		c.checkAt(child, now)
	}
}

// wakeParked schedules claims of ticks that wait for a place, or for older ticks of their job. changed has the jobs with newly decided ticks.
func (c *core) wakeParked(now time.Time, changed ...*task) {
	if c.leaving {
		return
	}
	for _, t := range changed {
		c.agenda.Wake(&t.line, c.places.free(), now)
	}
	c.agenda.WakeStarved(c.places.free(), now)
}

// giveUp removes a tick that may be undecided from the agenda. It also withdraws the tick's unanswered claim and frees its place on this replica, unless a claim
// is under way: that claim may be granted, and the tick then runs and needs the place.
func (c *core) giveUp(k *tick, dropped bool) {
	if c.agenda.GiveUp(k, dropped) {
		return
	}
	c.withdrawClaim(k)
	c.places.unplaceTick(k)
}

// withdrawClaim withdraws an unanswered claim of a tick, which may have been granted or may still be granted.
func (c *core) withdrawClaim(k *tick) {
	if k.Doubted {
		c.cfg.Claimer.Withdraw(c.claimFor(k))
	}
}

// claimFor returns a claim with the fields that do not change while a tick is claimed again and again.
func (c *core) claimFor(k *tick) election.Claim {
	j := k.Rules
	return election.Claim{Lock: election.JobLock(j.Name), ID: k.ID, Trigger: k.Trigger, Slots: j.Parallel, Lease: j.Runs.Lease,
		Memo: election.Memo(c.cfg.ownIdentity(), k.LastChance(), instantOfName(k.Name, k.At)),
		Tick: &election.Tick{At: k.Name, Instant: k.At, Previous: k.Previous, Schedule: k.Job.Of.scheduleDigest(), PerTick: j.PerTick,
			NotBefore: k.Due, Deadline: k.LastChance(), KeepOutcome: true}}
}

// instantOfName returns at, the instant of a tick, or zero if the name of the tick is its instant.
func instantOfName(name, at time.Time) time.Time {
	if at.Equal(name) {
		return time.Time{}
	}
	return at
}

// ackWhenWritten keeps a settlement, a decision that some ticks do not run, until its records are written. It schedules an inspection, which then
// acknowledges the settlement to Redis. tick is the last tick of the settlement.
func (c *core) ackWhenWritten(t *task, tick, now time.Time, written ...*run.Receipt) {
	t.unacked = append(t.unacked, unacked{tick, written})
	t.unacked = slices.Clone(t.unacked[max(len(t.unacked)-maxUnacked, 0):])
	c.inspectAt(t, now.Add(ackDelay))
}

// ackDelay is the time for which acknowledgements are collected before they are sent.
const ackDelay = 10 * time.Second

// maxUnacked is the number of settlements of a job that Redis keeps. If there are more, Redis drops the oldest.
const maxUnacked = 100

// forgetAcked drops the settlements that were acknowledged to Redis. It also drops settlements whose records could not be written, because the next
// inspection by any replica records them again.
func (c *core) forgetAcked(t *task, ticks []time.Time, now time.Time) {
	t.unacked = slices.DeleteFunc(t.unacked, func(u unacked) bool {
		return slices.ContainsFunc(ticks, u.tick.Equal) || slices.ContainsFunc(u.written, (*run.Receipt).Failed)
	})
	if len(t.unacked) > 0 {
		c.inspectAt(t, now.Add(ackDelay))
	}
}

// inspectRunning schedules an inspection for the end of each running run's lease. If a run may not have begun yet, the inspection is earlier: see
// [core.inspectTaken].
func (c *core) inspectRunning(t *task, st election.State) {
	for _, r := range st.Running {
		until := r.Expires
		if decided := startDecided(t.Rules.Runs, time.UnixMicro(int64(r.Token)), until); decided.After(st.Now) {
			until = decided
		}
		c.inspectAt(t, until)
	}
}

// logRefused logs that the lock of a job refuses requests until a person acts, at most once a minute for each job.
func (c *core) logRefused(t *task, err error, now time.Time) {
	if now.Before(t.quietUntil) {
		return
	}
	t.quietUntil = now.Add(time.Minute)
	message := "request about a job refused; ticks of jobs after it wait"
	if isDamaged(err) {
		message = "damaged job data in Redis; ticks wait"
	}
	c.log.Error(message, "job", t.Name, "error", err)
}

// isDamaged reports whether an error concerns the data of one lock, not the whole server.
func isDamaged(err error) bool { return errors.Is(err, election.ErrCorrupt) }

func (c *core) collectAll(now time.Time) {
	for {
		c.fallBehind(c.agenda.Collect(now), now)
		if at, ok := c.agenda.Next(); !c.agenda.More() && (!ok || at.After(now)) {
			return
		}
	}
}

// rebuildTimeline rebuilds the timeline of future ticks. The caller has opened all ticks that are due.
func (c *core) rebuildTimeline(now time.Time) {
	c.agenda.Clear()
	for _, t := range c.tasks {
		if !t.unknown && !t.isChained() {
			c.agenda.Enter(&t.line, now)
		}
	}
}

// fallBehind gives up ticks of jobs with too many open ticks. The next inspection settles these ticks.
func (c *core) fallBehind(given []*tick, now time.Time) {
	if len(given) == 0 {
		return
	}
	for _, k := range given {
		t := k.Job.Of
		t.Behind = cmp.Or(t.Behind, k.Cause.Reason)
		c.inspectAt(t, now)
		c.giveUp(k, false)
	}
	c.wakeParked(now, tasksOf(given)...)
}

// inspectTaken schedules an inspection of a job after another replica won a tick. That replica may give the tick back because it cannot start the run, and
// on a quorum no event reports this. So the inspection does not wait for the end of the lease. It comes when the other replica must have started the run or
// given the tick back, and early enough that this replica can start the run before the deadline.
func (c *core) inspectTaken(k *tick, until, now time.Time) {
	until = startDecided(k.Rules.Runs, now, until)
	if left := k.Deadline.Sub(now); left > 0 {
		until = earlier(until, k.Deadline.Add(-min(left/2, startMargin)))
	}
	c.inspectAt(k.Job.Of, until)
}

// startMargin is the time that two replicas need to give back a tick and to claim it.
const startMargin = time.Second

// startDecided returns the instant by which a run that was granted at granted has begun, or has given its grant back. It returns the end of the lease if the
// lease ends earlier.
func startDecided(j *run.Job, granted, expires time.Time) time.Time {
	if j.StartTimeout == 0 {
		return expires
	}
	return earlier(expires, granted.Add(j.StartTimeout+startMargin))
}

// places counts the occupied places of this replica. Each run and each claim that may become a run occupies one place. It belongs to the loop.
type places struct {
	most    int
	taken   int
	unready bool // no run may be started now, so no place is free
}

func (p *places) free() int {
	if p.unready {
		return 0
	}
	return p.most - p.taken
}

func (p *places) takePlace(t *task) {
	t.Running++
	p.taken++
}

func (p *places) releasePlace(t *task) {
	t.Running--
	p.taken--
}

func (p *places) unplaceTick(k *tick) {
	if k.Placed {
		k.Placed = false
		p.releasePlace(k.Job.Of)
	}
}

// A lane sends requests to Redis in batches, one batch at a time. Requests that become due while a batch is under way go into the next batch. So
// requests do not overtake each other, and do not pile up if Redis is slow. T is the type of a queued request, B the type of a batch with its
// answers.
//
// A lane belongs to the loop, which receives from answers and then sets busy to false.
type lane[T, B any] struct {
	due     *agenda.Queue[T] // queued requests, ordered by their time to be sent
	answers chan B           // capacity 1: sending an answer never blocks
	busy    bool             // a batch is under way
}

func newLane[T, B any](due *agenda.Queue[T]) lane[T, B] {
	return lane[T, B]{due: due, answers: make(chan B, 1)}
}

func (l *lane[T, B]) nextSend() (at time.Time, ok bool) {
	if l.busy {
		return time.Time{}, false
	}
	return l.due.First()
}

// sendBatch calls ask in a new goroutine, to send the batch and fill in the answers.
func (l *lane[T, B]) sendBatch(b B, ask func(*B)) {
	l.busy = true
	go func() {
		ask(&b)
		l.answers <- b
	}()
}

// maxClaims is the maximum number of claims in a batch. Redis decides the claims of a batch one after the other. Between short batches, this replica
// receives events about ticks that other replicas won, and need not claim these ticks.
const maxClaims = 250

const (
	// heldPause is the pause before a tick that found all slots held is claimed again.
	heldPause = 250 * time.Millisecond
	// longestHeldPause is the maximum of this pause. The pause grows if replicas publish an event when a slot becomes free.
	longestHeldPause = 4 * time.Second
)
