package agenda

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

// An Overlap is the policy for a tick that finds all slots of its job held.
type Overlap string

// The overlap policies.
const (
	Skip    Overlap = "skip"
	Queued  Overlap = "queue"
	Replace Overlap = "replace"
)

// A CatchUp is the policy for ticks that no replica decided before their deadlines.
type CatchUp string

// The catch-up policies.
const (
	CatchUpNone   CatchUp = "none"
	CatchUpLatest CatchUp = "latest"
	CatchUpAll    CatchUp = "all"
)

// Rules has the settings of a job for its ticks. It is immutable: a reload replaces it.
type Rules struct {
	Name                          string
	Parallel, PerTick, PerReplica int
	Jitter, StartDeadline         time.Duration
	Overlap                       Overlap
	CatchUp                       CatchUp
	CatchUpWindow                 time.Duration
	Runs                          *run.Job // the settings of the job's runs
}

// A Job has the open ticks of one job on this replica. T is the type of the caller's own data about the job.
type Job[T any] struct {
	*Rules
	Spec *cronspec.Schedule // nil for a chained job
	// Within returns the time from a tick of a chained job to its next possible tick, at most limit.
	Within func(tick time.Time, limit time.Duration) time.Duration
	Of     T // the caller's own data about the job
	// NewRules is the time since which the cluster has used this version of the zone data for the schedule. It is zero if the cluster used no other
	// version before.
	NewRules time.Time

	Open []*Tick[T] // the open ticks, oldest first
	// Running is the number of places on this replica that the job occupies, for runs and for claims that may become runs.
	Running int
	// Elsewhere is true if this replica lacks labels that the job requires, or if only another replica runs the job. This replica then never runs the job, and
	// only settles ticks that no other replica decides.
	Elsewhere bool
	// Behind, if set, is the reason to record for missed ticks before the oldest open tick. Some of these ticks may still be undecided on the server.
	Behind run.Reason

	opened int // the number of ticks opened so far
}

// LongestAuto is the maximum of the default start deadline.
const LongestAuto = time.Hour

// dueAt returns the earliest start of a tick: its instant plus the jitter.
func (j *Job[T]) dueAt(at, next time.Time) time.Time {
	if next.IsZero() {
		next = at.Add(j.Jitter + time.Second)
	}
	return at.Add(cronspec.Jitter(j.Name, at, next, j.Jitter))
}

// Deadline returns the latest start of the tick with the instant at. next is the instant of the following tick.
func (j *Job[T]) Deadline(at, next time.Time) time.Time {
	due := j.countedFrom(j.dueAt(at, next))
	if j.StartDeadline > 0 {
		return due.Add(j.StartDeadline)
	}
	end := due.Add(LongestAuto)
	if next.IsZero() || next.After(end) || j.Overlap == Queued { // with Queued, a tick may wait for a run that lasts beyond the next tick
		return end
	}
	if j.Jitter > 0 { // only a jitter needs the tick after next, which is expensive to compute
		next = j.dueAt(next, j.Spec.Next(next))
	}
	if next.Before(end) {
		return next
	}
	return end
}

// mostMoved is an upper bound of the time by which new zone data can move the instant of a local time.
const mostMoved = 26 * time.Hour

// countedFrom returns the instant from which the start deadline of a tick counts: the instant at which the tick is due, or NewRules if that is later.
// With the zone data before NewRules, the tick may have been due later, so no replica has claimed it yet.
func (j *Job[T]) countedFrom(due time.Time) time.Time {
	if due.Before(j.NewRules) && due.After(j.NewRules.Add(-mostMoved)) {
		return j.NewRules
	}
	return due
}

// deadlineAfter returns the latest start of a tick of a chained job. since is the time at which the runs of its parents had ended.
func (j *Job[T]) deadlineAfter(tick, since time.Time) time.Time {
	switch {
	case j.StartDeadline > 0:
		return since.Add(j.StartDeadline)
	case j.Overlap == Queued:
		return since.Add(LongestAuto)
	}
	return since.Add(j.Within(tick, LongestAuto))
}

// settleDelay returns the delay after a tick's deadline before this replica settles the tick. A replica without the job's labels waits, because a replica
// with the labels knows better why the tick did not run.
func (j *Job[T]) settleDelay() time.Duration {
	if j.Elsewhere {
		return unanswered
	}
	return 0
}

// Overdue returns the time since which the oldest open tick of a job has been due. ok is false if there is no open tick, or if the
// tick is expected to stay open: it waits for a run of the job, this replica lacks the job's labels, or other replicas may take the tick's further grants.
func (j *Job[T]) Overdue() (due time.Time, ok bool) {
	if len(j.Open) == 0 || j.Elsewhere || j.PerTick > 1 || j.Open[0].awaitsRun() {
		return time.Time{}, false
	}
	return j.Open[0].Due, true
}

// awaitsRun reports whether a tick waits for the end of a run of its job, on any replica.
func (k *Tick[T]) awaitsRun() bool {
	return !k.held.IsZero() || k.Cause.Reason == run.ReasonSlots || !k.Placed && k.Job.Running >= k.Job.PerReplica
}

// Catching up: a tick that no replica decided before its deadline may still start until the end of its catch-up window. The ticks of a job start
// oldest first. With the policy "latest" only the newest tick may still start, and only until a later tick is due.

// Extended returns the instant until which a late tick may start, by the catch-up policy of its job. newest is true if no later tick is due. The
// result depends only on the tick, so that every replica computes the same instant. Otherwise one replica could settle a tick as missed that another
// replica still wants to run.
func (r *Rules) Extended(at, deadline time.Time, newest bool) time.Time {
	if end := at.Add(r.CatchUpWindow); end.After(deadline) && (r.CatchUp == CatchUpAll || r.CatchUp == CatchUpLatest && newest) {
		return end
	}
	return deadline
}

// isUnseen reports whether, as far as this replica knows, no replica was able to decide a tick. It returns true if this replica was late or
// overloaded, because all other replicas may have been down. It returns false if a replica found no free slot or place for the tick.
func (k *Tick[T]) isUnseen() bool {
	return slices.Contains([]run.Reason{run.ReasonDown, run.ReasonRedis, run.ReasonLate, run.ReasonOverload}, k.Cause.Reason)
}

// LastChance returns the latest start of a tick: its deadline, or the end of its catch-up window if no replica was able to run it.
func (k *Tick[T]) LastChance() time.Time {
	if k.Trigger == run.CaughtUp || !k.isUnseen() {
		return k.Deadline
	}
	open := k.Job.Open
	return k.Rules.Extended(k.At, k.Deadline, len(open) > 0 && open[len(open)-1] == k)
}

// CatchUp moves the deadline of a late tick to its last chance, if it is to be caught up. From then on, the reason for which the tick waits no longer
// matters.
func (k *Tick[T]) CatchUp(now time.Time) {
	if end := k.LastChance(); now.After(k.Deadline) && end.After(k.Deadline) {
		k.Deadline, k.Trigger = end, run.CaughtUp
		k.waitInLine()
	}
}

// WasCaughtUp reports whether the policy of the job still lets a tick run that was given back and is reopened after its deadline. The tick then counts as
// caught up.
func (k *Tick[T]) WasCaughtUp(now time.Time) bool {
	passed := !k.Next.IsZero() && !k.Next.After(now)
	return now.After(k.Deadline) && (k.Rules.CatchUp == CatchUpAll || k.Rules.CatchUp == CatchUpLatest && !passed)
}

// passOver ends the catch-up of the newest open tick of a job with the policy "latest". It is called when a later tick is about to be opened.
func (a *Agenda[T]) passOver(j *Job[T], now time.Time) {
	if j.CatchUp != CatchUpLatest || len(j.Open) == 0 {
		return
	}
	k := j.Open[len(j.Open)-1]
	own := j.Deadline(k.At, k.Next)
	if !k.LastChance().After(own) {
		return
	}
	k.Deadline, k.Trigger = own, run.Scheduled
	at := own.Add(j.settleDelay() + time.Millisecond)
	if planned, ok := k.inAsks.When(); ok && planned.Before(at) {
		at = planned
	}
	if k.canAsk() {
		a.Ask(k, at, now)
	}
}

// Replacing: a tick that finds all slots held stops the oldest run, and waits for the slot of that run. Such a tick is contending. If newer ticks
// need all the slots, an older waiting tick is displaced: it is skipped. Ticks of a backlog do not replace each other, unless the first of them has
// found all slots held for longer than a period of the schedule.

// Replaces reports whether a claim of the tick should stop a run. The claim should do so only if this replica could then start the tick: either the
// tick already has a place, or the stopped run may free one.
func (k *Tick[T]) Replaces() bool {
	return k.Rules.Overlap == Replace && k.MayWin() && (k.Placed || k.Job.Running > 0)
}

// Contend makes a new tick contending, because its claim has stopped a run. A tick of a backlog stays InLine: it is displaced only if the backlog is stuck
// (see findsStuck).
func (k *Tick[T]) Contend() {
	if k.Standing == Fresh {
		k.Standing = Contending
	}
}

// findsStuck reports whether the backlog is stuck: the older tick o has found all slots held for more than a period of the schedule, that is since before
// the tick that precedes k. The runs then last so long that waiting ticks would wait until their deadlines.
func (k *Tick[T]) findsStuck(o *Tick[T]) bool {
	return o.Waits() && o.Standing != Displaced && !o.held.IsZero() && o.held.Before(k.Previous)
}

// displaceOlder counts the slots that k, a new tick, and then the newest waiting ticks need. It displaces the waiting ticks for which no slot is left.
func (a *Agenda[T]) displaceOlder(k *Tick[T], now time.Time) {
	if k.Rules.Overlap != Replace {
		return
	}
	stuck := slices.ContainsFunc(k.olderTicks(), k.findsStuck)
	needed := k.Rules.PerTick
	for _, o := range slices.Backward(k.olderTicks()) {
		if o.Standing != Contending && !(stuck && o.Standing == InLine) {
			continue
		}
		if needed += o.Rules.PerTick; needed <= k.Rules.Parallel {
			continue
		}
		o.Standing = Displaced
		if o.canAsk() {
			a.Ask(o, now, now)
		}
	}
}

// WakeContending schedules claims of contending and displaced ticks now. It is called when a run of the job has ended on this replica.
func (a *Agenda[T]) WakeContending(j *Job[T], now time.Time) {
	for _, k := range j.Open {
		if (k.Standing == Contending || k.Standing == Displaced) && k.canAsk() {
			a.Ask(k, now, now)
		}
	}
}
