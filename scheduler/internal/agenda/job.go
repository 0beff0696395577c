package agenda

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Overlap decides a tick that finds all slots of its job held.
type Overlap string

// The policies of overlap.
const (
	Skip    Overlap = "skip"
	Queued  Overlap = "queue"
	Replace Overlap = "replace"
)

// CatchUp decides a tick that no replica could decide before its deadline.
type CatchUp string

// The policies of catching up.
const (
	CatchUpNone   CatchUp = "none"
	CatchUpLatest CatchUp = "latest"
	CatchUpAll    CatchUp = "all"
)

// Rules are the settings of a job for its ticks. They are never changed: a reload brings others.
type Rules struct {
	Name                          string
	Parallel, PerTick, PerReplica int
	Jitter, StartDeadline         time.Duration
	Overlap                       Overlap
	CatchUp                       CatchUp
	CatchUpWindow                 time.Duration
	Of                            any // the configuration, for the caller
}

// Job is the ticks of a job on this replica.
type Job struct {
	*Rules
	Spec *cronspec.Schedule // nil for a chained job
	// Within is how long after a tick the next one of a chained job can be, at most limit.
	Within func(tick time.Time, limit time.Duration) time.Duration
	Of     any // the caller's own data of the job
	// NewRules is since when the cluster has used the zone data of the schedule, if it has used others before; else zero.
	NewRules time.Time

	Open []*Tick // oldest first
	// Running is how many places of this replica the job has: for runs, and for claims that may become one.
	Running int
	// Elsewhere says that this replica lacks labels that the job asks for: it only sees to it that each tick has an outcome.
	Elsewhere bool
	// Behind is why ticks before the oldest open one were missed, if such ticks may be undecided; else empty.
	Behind Reason

	opened int // how many ticks were opened
}

// LongestAuto bounds the start deadline of a rare job that sets none.
const LongestAuto = time.Hour

// due is the instant from which a tick may start.
func (j *Job) due(at, next time.Time) time.Time {
	if next.IsZero() {
		next = at.Add(j.Jitter + time.Second)
	}
	return at.Add(cronspec.Jitter(j.Name, at, next, j.Jitter))
}

// Deadline is the instant until which a tick may start; next is the one after it.
func (j *Job) Deadline(at, next time.Time) time.Time {
	due := j.countedFrom(j.due(at, next))
	if j.StartDeadline > 0 {
		return due.Add(j.StartDeadline)
	}
	end := due.Add(LongestAuto)
	if next.IsZero() || next.After(end) || j.Overlap == Queued { // else a tick that waits for the run before it would be missed when the next one is due
		return end
	}
	if j.Jitter > 0 { // else there is no need to know the tick after the next, which costs more than all the rest
		next = j.due(next, j.Spec.Next(next))
	}
	if next.Before(end) {
		return next
	}
	return end
}

// mostMoved is how far zone data have ever moved a local time, and a little more.
const mostMoved = 26 * time.Hour

// countedFrom is the instant from which the start deadline of a tick counts: from when it is due, but not before this cluster has used the zone data by
// which it is. By the data before, it may have been due only later, so no replica has asked for it.
func (j *Job) countedFrom(due time.Time) time.Time {
	if due.Before(j.NewRules) && due.After(j.NewRules.Add(-mostMoved)) {
		return j.NewRules
	}
	return due
}

// deadlineAfter is the instant until which a tick of a chained job may start that is due since the jobs before it have ended.
func (j *Job) deadlineAfter(tick, since time.Time) time.Time {
	switch {
	case j.StartDeadline > 0:
		return since.Add(j.StartDeadline)
	case j.Overlap == Queued:
		return since.Add(LongestAuto)
	}
	return since.Add(j.Within(tick, LongestAuto))
}

// lag is how long after a tick's deadline this replica waits before it settles it. A replica that may run the job knows better why the tick was missed,
// and is given time to say so.
func (j *Job) lag() time.Duration {
	if j.Elsewhere {
		return unanswered
	}
	return 0
}

// Overdue is since when the oldest open tick of a job has been due. There is none if that tick waits for a run of the job, if this replica lacks the job's labels, or
// if a tick has several grants: then a tick is open although all is well.
func (j *Job) Overdue() (due time.Time, ok bool) {
	if len(j.Open) == 0 || j.Elsewhere || j.PerTick > 1 || j.Open[0].awaitsRun() {
		return time.Time{}, false
	}
	return j.Open[0].Due, true
}

// awaitsRun returns whether a tick waits for a run of its job, here or on another replica.
func (k *Tick) awaitsRun() bool {
	return !k.held.IsZero() || k.Cause.Reason == Slots || !k.Placed && k.Job.Running >= k.Job.PerReplica
}
