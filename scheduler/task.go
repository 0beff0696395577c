package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// The agenda's types, as this package calls them.
type (
	line = agenda.Job
	tick = agenda.Tick
)

// task is a job and this replica's knowledge of it. It belongs to the loop.
type task struct {
	*Job // never changed: a reload brings another
	line // its ticks

	unknown   bool // its schedule is not announced to the server yet: it has no ticks
	dismissed bool // it is no job of this replica any more

	unacked    []unacked
	quietUntil time.Time // until then it is not said again that its lock is damaged

	chain    *chain  // instead of a schedule, if it runs after others
	children []*task // that run after it

	inInspections, inChecks agenda.Entry[*task] // of the scheduler
}

func newTask(job Job) (*task, error) {
	job = job.withDefaults()
	spec, err := job.parse()
	if err := errors.Join(job.validate(), err); err != nil {
		return nil, err
	}
	t := &task{Job: &job}
	t.Rules, t.Spec, t.line.Of = job.rules(), spec, t
	t.Within = func(tick time.Time, limit time.Duration) time.Duration { return t.chain.within(tick, limit) }
	t.inInspections.Value, t.inChecks.Value = t, t
	return t, nil
}

// rules returns the settings of a job that the agenda needs.
func (j *Job) rules() *agenda.Rules {
	return &agenda.Rules{Name: j.Name, Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, Jitter: j.Jitter, StartDeadline: j.StartDeadline,
		Overlap: agenda.Overlap(j.Overlap), CatchUp: agenda.CatchUp(j.CatchUp.Policy), CatchUpWindow: j.CatchUp.Window, Of: j}
}

// taskOf is the task of a tick.
func taskOf(k *tick) *task { return k.Job.Of.(*task) }

// jobOf is the job of a tick as it was when the tick was opened.
func jobOf(k *tick) *Job { return k.Rules.Of.(*Job) }

// tasksOf are the tasks of some ticks.
func tasksOf(ticks []*tick) []*task {
	tasks := make([]*task, len(ticks))
	for i, k := range ticks {
		tasks[i] = taskOf(k)
	}
	return tasks
}

// edit gives a task the configuration of another one with the same schedule.
func (t *task) edit(to *task) { t.Job, t.Rules, t.Elsewhere = to.Job, to.Rules, to.Elsewhere }

// reschedule gives a task the configuration of another one, with its schedule. It must have no open ticks.
func (t *task) reschedule(to *task) {
	t.edit(to)
	t.Spec, t.chain, t.Behind = to.Spec, to.chain, ""
}

// parse parses the schedule; nil if the job has none, but runs after others.
func (j *Job) parse() (*cronspec.Schedule, error) {
	if j.chained() {
		return nil, nil
	}
	spec, err := cronspec.Parse(j.Schedule, cronspec.Options{Location: j.Location, Name: j.Name,
		Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt})
	if err != nil {
		return nil, fmt.Errorf("job %s: schedule: %w", j.Name, err)
	}
	return spec, nil
}

// follower is the name by which a job follows others. Replicas that disagree on what it comes from do not use up the outcomes that each other needs.
func (t *task) follower() string { return t.Name + "." + t.chain.digest }

// has returns whether an instant may be a tick of the job.
func (t *task) has(at time.Time) bool {
	if t.chained() {
		return t.chain.has(at)
	}
	return t.Spec.Has(at)
}

// follows returns whether some job needs to know how a tick ends.
func (t *task) follows(name time.Time) bool {
	return !name.IsZero() && slices.ContainsFunc(t.children, func(c *task) bool { return c.chain.names(c.chain.from(t, name)) })
}

// announcement announces the schedule to the server.
func (t *task) announcement(now time.Time) election.InspectRequest {
	q := election.InspectRequest{Job: t.Name, Schedule: t.digest()}
	switch {
	case !t.chained():
		q.Behind, q.ZoneRules = t.Spec.Behind(now), t.Spec.ZoneRules()
	case nominal(t.chain.specs):
		q.Behind = t.chain.specs[0].Behind(now)
	}
	return q
}

// sameZones reports whether the zones of another configuration of the job have the same clocks: a reload may bring other zone data.
func (t *task) sameZones(to *task, now time.Time) bool {
	if !t.chained() {
		return t.Spec.SameZone(to.Spec, now)
	}
	return slices.EqualFunc(t.chain.specs, to.chain.specs, func(a, b *cronspec.Schedule) bool { return a.SameZone(b, now) })
}

// digest identifies a job's schedule for the server: schedules that differ have digests that differ.
func (t *task) digest() string {
	if t.chained() {
		return t.chain.digest
	}
	return t.Spec.Digest()
}

// key does the same for this process.
func (t *task) key() string {
	if t.chained() {
		return "after " + t.chain.digest
	}
	return t.Spec.Key()
}

// poolFault returns an error if some jobs have pools and there is no claimer for these.
func (c *Config) poolFault(jobs []Job) error {
	if c.Pools != nil || c.Claimer == nil {
		return nil
	}
	for _, j := range jobs {
		if j.Pool.Name != "" {
			return fmt.Errorf("job %s: it has a Pool, and Config.Pools is missing", j.Name)
		}
	}
	return nil
}
