package scheduler

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A named identifies a tick. name is the same on every replica: see [cronspec.Schedule.ID]. at is the instant of the tick, computed from one
// replica's zone data. Both are equal if the schedule identifies ticks by their instants.
type named struct{ name, at time.Time }

// localTime returns the local time that identifies the tick, with UTC as its zone, or zero if the instant identifies the tick.
func (n named) localTime() time.Time {
	if n.name.Equal(n.at) {
		return time.Time{}
	}
	return cronspec.LocalTime(n.name)
}

type (
	line = agenda.Job[*task]
	tick = agenda.Tick[*task]
)

// tickRecord returns the record of a tick without a run. Its RunID is the same on every replica.
func tickRecord(job string, of named, verdict run.Verdict, replica string, now time.Time) run.Record {
	id := of.at.UTC().Format("20060102T150405Z")
	if local := of.localTime(); !local.IsZero() {
		id = local.Format("20060102T150405")
	}
	return run.Record{RunID: job + "." + id, Job: job, Tick: of.at, TickLocal: run.LocalText(of.localTime()), Trigger: run.Scheduled,
		Replica: replica, Outcome: verdict.Outcome, Reason: verdict.Reason, Finished: now}
}

// newRunID returns a random id of 16 characters with 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }

// A task is a job with its state on this replica. It belongs to the loop.
type task struct {
	*Job // immutable: a reload replaces it
	line // the ticks of the job

	unknown   bool // the schedule is not announced to Redis yet, so the job has no ticks
	dismissed bool // a reload has removed the job

	unacked    []unacked
	quietUntil time.Time // a refusal of the job's lock is not logged again before this time

	chain    *chain  // replaces the schedule of a child; otherwise nil
	children []*task // the tasks that run after this task

	inInspections, inChecks agenda.Entry[*task] // entries in the queues of inspections and checks
}

func newTask(job Job) (*task, error) {
	job = job.withDefaults()
	spec, err := job.parseSchedule()
	if err := errors.Join(job.validate(), err); err != nil {
		return nil, err
	}
	t := &task{Job: &job}
	t.Rules, t.Spec, t.line.Of = job.agendaRules(), spec, t
	t.Within = func(tick time.Time, limit time.Duration) time.Duration { return t.chain.untilNext(tick, limit) }
	t.inInspections.Value, t.inChecks.Value = t, t
	return t, nil
}

func (j *Job) agendaRules() *agenda.Rules {
	return &agenda.Rules{Name: j.Name, Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, Jitter: j.Jitter, StartDeadline: j.StartDeadline,
		Overlap: j.Overlap, CatchUp: j.CatchUp.Policy, CatchUpWindow: j.CatchUp.Window, Runs: j.forRuns()}
}

func tasksOf(ticks []*tick) []*task {
	tasks := make([]*task, len(ticks))
	for i, k := range ticks {
		tasks[i] = k.Job.Of
	}
	return tasks
}

// applyConfig copies the configuration of a task with the same schedule.
func (t *task) applyConfig(to *task) { t.Job, t.Rules, t.Elsewhere = to.Job, to.Rules, to.Elsewhere }

// parseSchedule returns nil for a child.
func (j *Job) parseSchedule() (*cronspec.Schedule, error) {
	if j.isChained() {
		return nil, nil
	}
	spec, err := cronspec.Parse(j.Schedule, cronspec.Options{Location: j.Location, Name: j.Name,
		Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt})
	if err != nil {
		return nil, fmt.Errorf("job %s: schedule: %w", j.Name, err)
	}
	return spec, nil
}

// followerName returns the name under which a child registers with its parents. The name has the digest of the chain. So a replica does not release outcomes
// that replicas with another configuration of the child still need.
func (t *task) followerName() string { return t.Name + "." + t.chain.digest }

// mayHaveTick reports whether the schedules have a tick at an instant. For a child, the outcomes of its parents at this instant do not matter.
func (t *task) mayHaveTick(at time.Time) bool {
	if t.isChained() {
		return t.chain.hasInstant(at)
	}
	return t.Spec.Has(at)
}

// isFollowed reports whether a child of the job needs the outcome of a tick.
func (t *task) isFollowed(name time.Time) bool {
	return !name.IsZero() && slices.ContainsFunc(t.children, func(c *task) bool { return c.chain.hasTick(c.chain.nameFrom(t, name)) })
}

func (t *task) announceRequest(now time.Time) election.InspectRequest {
	q := election.InspectRequest{Lock: election.JobLock(t.Name), Schedule: t.scheduleDigest()}
	switch {
	case !t.isChained():
		q.Behind, q.ZoneRules = t.Spec.Behind(now), t.Spec.ZoneRules()
	case allNominal(t.chain.specs):
		q.Behind = t.chain.specs[0].Behind(now)
	}
	return q
}

// sameZones reports whether the zone data of another configuration of the job is equivalent. A reload may load a new version of the zone data.
func (t *task) sameZones(to *task, now time.Time) bool {
	if !t.isChained() {
		return t.Spec.SameZone(to.Spec, now)
	}
	return slices.EqualFunc(t.chain.specs, to.chain.specs, func(a, b *cronspec.Schedule) bool { return a.SameZone(b, now) })
}

// scheduleDigest returns the text that identifies the job's schedule in Redis. Different schedules have different digests.
func (t *task) scheduleDigest() string {
	if t.isChained() {
		return t.chain.digest
	}
	return t.Spec.Digest()
}

// scheduleKey returns the text that identifies the job's schedule in this process.
func (t *task) scheduleKey() string {
	if t.isChained() {
		return "after " + t.chain.digest
	}
	return t.Spec.Key()
}

// newTasks validates jobs and returns their tasks by name. Jobs with equal schedules share one Schedule, because many jobs may have the same schedule.
func (c *Config) newTasks(jobs []Job) (map[string]*task, error) {
	var faults []error
	own := Labels{}
	maps.Copy(own, c.Labels)
	own[ReplicaLabel] = c.Replica
	tasks, specs := map[string]*task{}, map[string]*cronspec.Schedule{}
	for _, job := range jobs {
		t, err := newTask(job)
		if err == nil {
			t.Elsewhere = !own.Include(job.Where)
		}
		if err == nil && !t.isChained() {
			specs[t.Spec.Key()] = cmp.Or(specs[t.Spec.Key()], t.Spec)
			t.Spec = specs[t.Spec.Key()]
		}
		if _, twice := tasks[job.Name]; twice {
			err = errors.Join(err, fmt.Errorf("job %s: there are two of this name", job.Name))
		}
		faults = append(faults, err)
		tasks[job.Name] = t
	}
	return tasks, errors.Join(append(faults, linkTasks(tasks))...)
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// An unacked has the receipts for the records of one settlement that this replica has not acknowledged to Redis yet. Redis keeps a settlement until
// it is acknowledged, because the replica that settled the tick may have died before it recorded the settlement.
type unacked struct {
	tick    time.Time
	written []*run.Receipt
}

// isSettled reports whether this replica has queued the records of a settlement. tick is the last tick of the settlement.
func (t *task) isSettled(tick time.Time) bool {
	return slices.ContainsFunc(t.unacked, func(u unacked) bool { return u.tick.Equal(tick) })
}

// ackableTicks returns the ticks of the settlements whose records are all written.
func (t *task) ackableTicks() (ticks []time.Time) {
	for _, u := range t.unacked {
		if !slices.ContainsFunc(u.written, func(r *run.Receipt) bool { return !r.Succeeded() }) {
			ticks = append(ticks, u.tick)
		}
	}
	return ticks
}
