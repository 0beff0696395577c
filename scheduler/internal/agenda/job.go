package agenda

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// An Overlap decides a tick that finds all slots of its job held.
type Overlap string

// The overlap policies.
const (
	Skip    Overlap = "skip"
	Queued  Overlap = "queue"
	Replace Overlap = "replace"
)

// A CatchUp decides a tick that no replica could decide before its deadline.
type CatchUp string

// The catch-up policies.
const (
	CatchUpNone   CatchUp = "none"
	CatchUpLatest CatchUp = "latest"
	CatchUpAll    CatchUp = "all"
)

// Rules has the settings of a job for its ticks. It never changes: a reload replaces it.
type Rules struct {
	Name                          string
	Parallel, PerTick, PerReplica int
	Jitter, StartDeadline         time.Duration
	Overlap                       Overlap
	CatchUp                       CatchUp
	CatchUpWindow                 time.Duration
	Of                            any // the job, for the caller
}

// A Job has the ticks of a job on this replica.
type Job struct {
	*Rules
	Spec *cronspec.Schedule // nil for a chained job
	// Within returns the time from a tick of a chained job to the next tick that is possible, at most limit.
	Within func(tick time.Time, limit time.Duration) time.Duration
	Of     any // the caller's own data about the job
	// NewRules is the time since which the cluster has used the zone data of the schedule, if it used other data before; otherwise zero.
	NewRules time.Time

	Open []*Tick // the open ticks, oldest first
	// Running is the number of places on this replica that the job has: for runs, and for claims that may become runs.
	Running int
	// Elsewhere is true if this replica lacks labels that the job requires. It then only makes sure that each tick has an outcome.
	Elsewhere bool
	// Behind is the reason for which ticks before the oldest open one were missed, if such ticks may be undecided; otherwise "".
	Behind Reason

	opened int // the number of ticks opened so far
}

// LongestAuto bounds the default start deadline.
const LongestAuto = time.Hour

// dueAt returns the instant from which a tick may start.
func (j *Job) dueAt(at, next time.Time) time.Time {
	if next.IsZero() {
		next = at.Add(j.Jitter + time.Second)
	}
	return at.Add(cronspec.Jitter(j.Name, at, next, j.Jitter))
}

// Deadline returns the instant until which a tick may start. next is the tick after it.
func (j *Job) Deadline(at, next time.Time) time.Time {
	due := j.countedFrom(j.dueAt(at, next))
	if j.StartDeadline > 0 {
		return due.Add(j.StartDeadline)
	}
	end := due.Add(LongestAuto)
	if next.IsZero() || next.After(end) || j.Overlap == Queued { // otherwise a tick that waits for the run before it would be missed when the next one is due
		return end
	}
	if j.Jitter > 0 { // without a jitter there is no need to compute the tick after next, which costs more than all the rest
		next = j.dueAt(next, j.Spec.Next(next))
	}
	if next.Before(end) {
		return next
	}
	return end
}

// mostMoved is a little more than the largest change of a local time by new zone data.
const mostMoved = 26 * time.Hour

// countedFrom returns the instant from which the start deadline of a tick counts: when it is due, but not before this cluster used the zone data by
// which it is due. By the data before, it may have been due only later, so no replica asked for it.
func (j *Job) countedFrom(due time.Time) time.Time {
	if due.Before(j.NewRules) && due.After(j.NewRules.Add(-mostMoved)) {
		return j.NewRules
	}
	return due
}

// deadlineAfter returns the instant until which a tick of a chained job may start. since is the time at which its parents had ended.
func (j *Job) deadlineAfter(tick, since time.Time) time.Time {
	switch {
	case j.StartDeadline > 0:
		return since.Add(j.StartDeadline)
	case j.Overlap == Queued:
		return since.Add(LongestAuto)
	}
	return since.Add(j.Within(tick, LongestAuto))
}

// settleDelay returns the time after the deadline of a tick for which this replica waits before it settles the tick. A replica that may run the job knows
// better why the tick was missed, and is given time to settle it.
func (j *Job) settleDelay() time.Duration {
	if j.Elsewhere {
		return unanswered
	}
	return 0
}

// Overdue returns the time since which the oldest open tick of a job has been due. ok is false if that tick waits for a run of the job, if this
// replica lacks the job's labels, or if a tick has several grants, because then a tick is open although all is well.
func (j *Job) Overdue() (due time.Time, ok bool) {
	if len(j.Open) == 0 || j.Elsewhere || j.PerTick > 1 || j.Open[0].awaitsRun() {
		return time.Time{}, false
	}
	return j.Open[0].Due, true
}

// awaitsRun reports whether a tick waits for a run of its job, here or on another replica.
func (k *Tick) awaitsRun() bool {
	return !k.held.IsZero() || k.Cause.Reason == Slots || !k.Placed && k.Job.Running >= k.Job.PerReplica
}
