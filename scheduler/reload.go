package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// ErrDraining means that a scheduler takes no more jobs, because it is draining or has ended.
var ErrDraining = errors.New("the scheduler drains")

// A reload is a new set of jobs on its way to the loop.
type reload struct {
	tasks map[string]*task
	done  chan struct{} // closed when they are in force
}

// Reload replaces the jobs of a running scheduler, and returns when the new ones are in force. If any of them is faulty nothing changes, and every
// fault is in the error.
//
// Runs that are under way go on as they began. A job with the same schedule keeps its due ticks; its other settings apply to ticks that come due from
// then on. A schedule that is new or changed counts from when the server has it, so it never fires in retrospect; waiting ticks of the old schedule
// are dropped. A Location with other zone data has the same effect as on a replica that starts with it.
//
// Reload waits for the loop, which begins when the server has first answered after [Scheduler.Run] was called. If ctx ends before, or the drain has
// begun ([ErrDraining]), nothing is changed. It is safe for concurrent use.
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

// handleReload puts new jobs in force.
func (s *Scheduler) handleReload(r reload, now time.Time) {
	defer close(r.done)
	s.collectAll(now) // ticks that are due now are due by the old schedules
	maps.DeleteFunc(s.dismissed, func(_ string, t *task) bool { return t.Running == 0 })
	for name, t := range s.tasks {
		if r.tasks[name] == nil {
			s.dismissTask(t)
			delete(s.tasks, name)
		}
	}
	for name, to := range r.tasks {
		switch t := orDefault(s.tasks[name], s.dismissed[name]); {
		case t == nil:
			s.tasks[name] = to
			s.announceTask(to, now)
		case t.scheduleKey() == to.scheduleKey() && t.sameZones(to, now) && s.tasks[name] == t:
			t.applyConfig(to)
			s.agenda.Wake(&t.line, s.places.free(), now) // there may be more places for it now
		default:
			s.dropOpen(t)
			t.applySchedule(to)
			s.tasks[name], t.dismissed = t, false
			delete(s.dismissed, name)
			s.announceTask(t, now)
		}
	}
	linkChildren(s.tasks)
	s.nameTasks()
	s.rebuildTimeline(now)
}

// dismissTask removes a job. Its runs go on, and it is inspected until none is left, because their holders may die.
func (s *Scheduler) dismissTask(t *task) {
	s.dropOpen(t)
	t.dismissed = true
	s.inspectAt(t, s.now())
	if t.Running > 0 { // the job may come back before they have ended, and they count
		s.dismissed[t.Name] = t
	}
}

// dropOpen closes the open ticks of a schedule that is gone. A tick whose claim is under way is run if it is granted, because no other replica will
// run it.
func (s *Scheduler) dropOpen(t *task) {
	if n := len(t.Open); n > 0 {
		s.log.Info("waiting ticks dropped: the job was removed, or its schedule or zone data changed", "job", t.Name, "ticks", n, "first", t.Open[0].At.Format(time.RFC3339))
	}
	for _, k := range slices.Clone(t.Open) {
		s.giveUp(k, true)
	}
}

// announceTask announces a job's schedule to the server. The job has ticks from then on.
func (s *Scheduler) announceTask(t *task, now time.Time) {
	t.unknown = true
	if t.isChained() { // its parents come first
		s.checkAt(t, now)
		return
	}
	s.inspectAt(t, now)
}

// startAnnounced starts a job whose schedule was announced to the server, as [Scheduler.beginSchedules] does.
func (s *Scheduler) startAnnounced(t *task, told election.InspectRequest, st election.State, now time.Time) {
	if told.Schedule != t.scheduleDigest() { // the job was edited meanwhile, or before the announcement was sent
		s.inspectAt(t, now)
		return
	}
	t.unknown = false
	if t.isChained() {
		s.checkAt(t, now)
		return
	}
	s.agenda.Enter(&t.line, now)
	if q := s.openPastTicks(t, st, now); !q.SettleThrough.IsZero() {
		t.Behind = agenda.Down
		s.inspectAt(t, now)
	}
}

// nameTasks publishes the names of the jobs, and the rules of their recoveries, to other goroutines.
func (s *Scheduler) nameTasks() {
	names, recovers := make([]string, 0, len(s.tasks)), map[string]recoverRules{}
	for name, t := range s.tasks {
		names = append(names, name)
		if t.Recover.Max > 0 {
			recovers[name] = t.recoverRules()
		}
	}
	s.names.Store(&names)
	s.inspector.rules.Store(&recovers)
}
