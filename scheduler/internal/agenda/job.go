package agenda

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
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
	Of                            any // the caller's job
}

// A Job has the open ticks of one job on this replica.
type Job struct {
	*Rules
	Spec *cronspec.Schedule // nil for a chained job
	// Within returns the time from a tick of a chained job to its next possible tick, at most limit.
	Within func(tick time.Time, limit time.Duration) time.Duration
	Of     any // the caller's own data about the job
	// NewRules is the time since which the cluster has used this version of the zone data for the schedule. It is zero if the cluster used no other
	// version before.
	NewRules time.Time

	Open []*Tick // the open ticks, oldest first
	// Running is the number of places on this replica that the job occupies, for runs and for claims that may become runs.
	Running int
	// Elsewhere is true if this replica lacks labels that the job requires. This replica then never runs the job, and only settles ticks that no other
	// replica decides.
	Elsewhere bool
	// Behind is set if ticks before the oldest open tick may be undecided. It is the reason for which they are missed.
	Behind Reason

	opened int // the number of ticks opened so far
}

// LongestAuto is the maximum of the default start deadline.
const LongestAuto = time.Hour

// dueAt returns the earliest start of a tick: its instant plus the jitter.
func (j *Job) dueAt(at, next time.Time) time.Time {
	if next.IsZero() {
		next = at.Add(j.Jitter + time.Second)
	}
	return at.Add(cronspec.Jitter(j.Name, at, next, j.Jitter))
}

// Deadline returns the latest start of the tick with the instant at. next is the instant of the following tick.
func (j *Job) Deadline(at, next time.Time) time.Time {
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

// mostMoved is more than the time by which new zone data can move the instant of a local time.
const mostMoved = 26 * time.Hour

// countedFrom returns the instant from which the start deadline of a tick counts: the instant at which the tick is due, or NewRules if that is later.
// With the zone data before NewRules, the tick may have been due later, so no replica has claimed it yet.
func (j *Job) countedFrom(due time.Time) time.Time {
	if due.Before(j.NewRules) && due.After(j.NewRules.Add(-mostMoved)) {
		return j.NewRules
	}
	return due
}

// deadlineAfter returns the latest start of a tick of a chained job. since is the time at which the runs of its parents had ended.
func (j *Job) deadlineAfter(tick, since time.Time) time.Time {
	switch {
	case j.StartDeadline > 0:
		return since.Add(j.StartDeadline)
	case j.Overlap == Queued:
		return since.Add(LongestAuto)
	}
	return since.Add(j.Within(tick, LongestAuto))
}

// settleDelay returns the delay after a tick's deadline before this replica settles the tick. A replica that may not run the job waits, because a
// replica that may run it has better information about the reason.
func (j *Job) settleDelay() time.Duration {
	if j.Elsewhere {
		return unanswered
	}
	return 0
}

// Overdue returns the time since which the oldest open tick of a job has been due. ok is false if there is none, or if an open tick is normal: the
// oldest tick waits for a run of the job, this replica lacks the job's labels, or ticks of the job have several grants.
func (j *Job) Overdue() (due time.Time, ok bool) {
	if len(j.Open) == 0 || j.Elsewhere || j.PerTick > 1 || j.Open[0].awaitsRun() {
		return time.Time{}, false
	}
	return j.Open[0].Due, true
}

// awaitsRun reports whether a tick waits for the end of a run of its job, on any replica.
func (k *Tick) awaitsRun() bool {
	return !k.held.IsZero() || k.Cause.Reason == Slots || !k.Placed && k.Job.Running >= k.Job.PerReplica
}
