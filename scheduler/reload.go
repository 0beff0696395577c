package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// ErrDraining means that a scheduler takes no more jobs: it drains, or has ended.
var ErrDraining = errors.New("the scheduler drains")

// reload is a new set of jobs on its way to the loop.
type reload struct {
	tasks map[string]*task
	done  chan struct{} // closed when they are in force
}

// Reload replaces the jobs of a scheduler that runs, and returns when the new ones are in force. If any of them is faulty nothing changes, and every
// fault is in the error. Runs that are under way go on as they began. A job that keeps its schedule keeps its place in it, and what is due of
// it; whatever else has changed counts for ticks that come due from then on. A schedule that is new, or edited, counts from when the server has been told of it, so it never fires in
// retrospect; ticks of the one before that were waiting are dropped. It waits for the loop, that is for the server's first answer after [Scheduler.Run]
// has begun, until ctx ends; then, and after the drain has begun ([ErrDraining]), nothing is changed. It may be called by several goroutines.
func (s *Scheduler) Reload(ctx context.Context, jobs []Job) error {
	tasks, err := newTasks(jobs, s.cfg.Labels)
	if err := errors.Join(err, s.cfg.poolFault(jobs)); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	r := reload{tasks, make(chan struct{})}
	select {
	case s.reloads <- r:
		<-r.done
		return nil
	case <-ctx.Done():
		return fmt.Errorf("scheduler: reload: %w", context.Cause(ctx))
	case <-s.exec.draining.Done():
	case <-s.abort.Done():
	}
	return fmt.Errorf("scheduler: reload: %w", ErrDraining)
}

// newTasks validates jobs. Those with one schedule share it: there may be many.
func newTasks(jobs []Job, labels Labels) (map[string]*task, error) {
	var faults []error
	tasks, specs := map[string]*task{}, map[string]*cronspec.Schedule{}
	for _, job := range jobs {
		t, err := newTask(job)
		if err == nil {
			t.foreign = !labels.Include(job.Where)
		}
		if err == nil && !t.chained() {
			specs[t.spec.Key()] = orDefault(specs[t.spec.Key()], t.spec)
			t.spec = specs[t.spec.Key()]
		}
		if _, twice := tasks[job.Name]; twice {
			err = errors.Join(err, fmt.Errorf("job %s: there are two of this name", job.Name))
		}
		faults = append(faults, err)
		tasks[job.Name] = t
	}
	return tasks, errors.Join(append(faults, link(tasks))...)
}

// heedReload puts new jobs in force.
func (s *Scheduler) heedReload(r reload, now time.Time) {
	defer close(r.done)
	s.collectAll(now) // what is due is due by the schedules of before
	maps.DeleteFunc(s.dismissed, func(_ string, t *task) bool { return t.running == 0 })
	for name, t := range s.tasks {
		if r.tasks[name] == nil {
			s.dismiss(t)
			delete(s.tasks, name)
		}
	}
	for name, to := range r.tasks {
		switch t := orDefault(s.tasks[name], s.dismissed[name]); {
		case t == nil:
			s.tasks[name] = to
			s.introduce(to, now)
		case t.key() == to.key() && s.tasks[name] == t:
			t.Job, t.foreign = to.Job, to.foreign
			s.agenda.wake(t, s.places(), now) // there may be more place for it now
		default:
			s.dropOpen(t)
			t.Job, t.foreign, t.spec, t.chain, t.behind, t.why = to.Job, to.foreign, to.spec, to.chain, false, ""
			s.tasks[name], t.dismissed = t, false
			delete(s.dismissed, name)
			s.introduce(t, now)
		}
	}
	linkChildren(s.tasks)
	s.nameTasks()
	s.replan(now)
}

// dismiss forgets a job. Its runs go on, and it is looked at until none is left: whoever runs it may die.
func (s *Scheduler) dismiss(t *task) {
	s.dropOpen(t)
	t.dismissed = true
	s.watch(t, s.now())
	if t.running > 0 { // it may come back before they have ended, and they count
		s.dismissed[t.Name] = t
	}
}

// dropOpen closes the open ticks of a schedule that is no more. One that is granted by a claim under way is run all the same: nobody else will.
func (s *Scheduler) dropOpen(t *task) {
	if n := len(t.open); n > 0 {
		s.log.Info("ticks dropped: their schedule is no more", "job", t.Name, "ticks", n, "first", t.open[0].at.Format(time.RFC3339))
	}
	for _, k := range slices.Clone(t.open) {
		k.dropped = true
		s.giveUp(k)
	}
}

// introduce has the server told of a job's schedule. It has ticks from then on.
func (s *Scheduler) introduce(t *task, now time.Time) {
	t.unknown = true
	if t.chained() { // those before it are told first
		s.check(t, now)
		return
	}
	s.watch(t, now)
}

// welcome begins a job of whose schedule the server has been told, as [Scheduler.begin] does.
func (s *Scheduler) welcome(t *task, told election.Inquiry, st election.State, now time.Time) {
	if told.Schedule != t.digest() { // it was edited again meanwhile, or before it was asked
		s.watch(t, now)
		return
	}
	t.unknown = false
	if t.chained() {
		s.check(t, now)
		return
	}
	s.agenda.timeline.add(t.spec, t, now)
	if q := s.resume(t, st, now); !q.SettleThrough.IsZero() {
		t.behind, t.why = true, "down"
		s.watch(t, now)
	}
}

// collectAll opens all ticks that are due.
func (s *Scheduler) collectAll(now time.Time) {
	for {
		s.fallBehind(s.agenda.collect(now), now)
		if at, ok := s.agenda.timeline.next(); !s.agenda.more() && (!ok || at.After(now)) {
			return
		}
	}
}

// replan builds the timeline anew. All that is due by now must be open.
func (s *Scheduler) replan(now time.Time) {
	s.agenda.clear()
	for _, t := range s.tasks {
		if !t.unknown && !t.chained() {
			s.agenda.timeline.add(t.spec, t, now)
		}
	}
}

// nameTasks tells other goroutines the names of the jobs, and which are recovered.
func (s *Scheduler) nameTasks() {
	names, recovers := make([]string, 0, len(s.tasks)), map[string]recovery{}
	for name, t := range s.tasks {
		names = append(names, name)
		if t.Recover.Max > 0 {
			recovers[name] = t.recovery()
		}
	}
	s.names.Store(&names)
	s.recovers.Store(&recovers)
}
