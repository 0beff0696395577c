package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrDraining means that [Scheduler.Reload] did nothing because the scheduler is draining or has ended.
var ErrDraining = errors.New("the scheduler drains")

// A reload is a new set of jobs on its way to the loop.
type reload struct {
	tasks map[string]*task
	done  chan struct{} // closed when the loop has applied the jobs
}

// Reload replaces the jobs of a running scheduler, and returns when the new jobs are in force. If any job is invalid, Reload changes nothing, and the
// error has every fault.
//
// Running jobs keep the settings with which they began. A job whose schedule did not change keeps its due ticks, and its new settings apply to later
// ticks. A new or changed schedule begins when Redis has received it, so it has no ticks in the past. Waiting ticks of the old schedule are dropped.
// If only the zone data of a Location changed, the effect is the same as on a replica that starts with the new data.
//
// Reload waits until [Scheduler.Run] was called and Redis has answered for the first time. If ctx ends first, or the drain has begun ([ErrDraining]),
// Reload changes nothing. It is safe for concurrent use.
func (s *Scheduler) Reload(ctx context.Context, jobs []Job) error {
	tasks, err := s.cfg.newTasks(jobs)
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
	case <-s.exec.Draining().Done():
	case <-s.abort.Done():
	}
	return fmt.Errorf("scheduler: reload: %w", ErrDraining)
}

func (s *Scheduler) handleReload(r reload, now time.Time) {
	defer close(r.done)
	s.collectAll(now) // ticks that are already due still belong to the old schedules
	maps.DeleteFunc(s.dismissed, func(_ string, t *task) bool { return t.Running == 0 })
	for name, t := range s.tasks {
		if r.tasks[name] == nil {
			s.dismissTask(t)
			delete(s.tasks, name)
		}
	}
	for name, to := range r.tasks {
		switch t := cmp.Or(s.tasks[name], s.dismissed[name]); {
		case t == nil:
			s.tasks[name] = to
			s.inspections.announceTask(to, now)
		case t.scheduleKey() == to.scheduleKey() && t.sameZones(to, now) && s.tasks[name] == t:
			t.applyConfig(to)
			s.agenda.Wake(&t.line, s.places.free(), now) // if PerReplica is greater now, parked ticks can be claimed
		default:
			s.dropOpen(t)
			t.applyConfig(to)
			t.Spec, t.chain, t.Behind = to.Spec, to.chain, ""
			s.tasks[name], t.dismissed = t, false
			delete(s.dismissed, name)
			s.inspections.announceTask(t, now)
		}
	}
	linkChildren(s.tasks)
	s.nameTasks()
	s.rebuildTimeline(now)
}

// dismissTask removes a job. Its runs go on. The job is still inspected until it has no runs, because the holders of the runs may die.
func (s *Scheduler) dismissTask(t *task) {
	s.dropOpen(t)
	t.dismissed = true
	s.inspectAt(t, s.now())
	if t.Running > 0 { // if another reload adds the job again, the old runs still count for PerReplica
		s.dismissed[t.Name] = t
	}
}

// dropOpen gives up the open ticks of a replaced schedule. A tick whose claim is under way still runs if it is granted, because no other replica will
// run it.
func (s *Scheduler) dropOpen(t *task) {
	if n := len(t.Open); n > 0 {
		s.log.Info("waiting ticks dropped: the job was removed, or its schedule or zone data changed", "job", t.Name, "ticks", n, "first", t.Open[0].At.Format(time.RFC3339))
	}
	for _, k := range slices.Clone(t.Open) {
		s.giveUp(k, true)
	}
}

// nameTasks makes the names of the jobs, and the rules of the jobs with Recover, available to other goroutines.
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
