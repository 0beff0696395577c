package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// reopenReturned opens ticks that were granted and given back before their start. Replicas had closed these ticks when they were granted. The
// reopened ticks wait for a slot, and are not skipped.
func (s *Scheduler) reopenReturned(t *task, st election.State, now time.Time) {
	reason := agenda.Late // a guess: the replica that gave the tick back has more information
	if t.Pool.Name != "" {
		reason = agenda.Pool
	}
	if t.isChained() { // a check compares them with the ticks of the parents
		if len(st.Open) > 0 {
			s.checkAt(t, now)
		}
		return
	}
	if s.exec.breaker.openReason() != "" {
		reason = agenda.Capacity
	}
	for _, name := range st.Open {
		s.reopenTick(t, name, reason, now)
	}
}

// reopenTick opens one tick, unless this replica has it open.
func (s *Scheduler) reopenTick(t *task, name time.Time, reason agenda.Reason, now time.Time) {
	if _, open := t.Find(name); open || t.unknown || t.dismissed || len(t.Open) >= agenda.MaxOpen {
		return
	}
	at, named := t.Spec.Instant(name)
	if !named {
		return
	}
	k := s.agenda.Open(&t.line, agenda.InstantsOf(t.Spec, at), now)
	k.Wait(agenda.Cause{Reason: reason, Borrowed: k.Cause.Borrowed})
	if k.WasCaughtUp(now) {
		k.Cause.Reason = agenda.Down
	}
}

// reopenUnstarted reopens a tick after this replica could not start its run and gave the grant back.
func (s *Scheduler) reopenUnstarted(g *grant, now time.Time) {
	t := g.task
	if s.leaving {
		return
	}
	switch {
	case g.trigger == recovered: // the inspection finds the orphan again
		s.inspectAt(t, now)
	case t.isChained(): // a check compares them with the ticks of the parents
		s.checkAt(t, now)
	default:
		if i, open := t.Find(g.of.name); open { // it is open for another grant (PerTick > 1)
			t.Open[i].Won = max(t.Open[i].Won-1, 0)
			return
		}
		s.reopenTick(t, g.of.name, agenda.Capacity, now)
	}
}

// handleFinished handles a grant that is over. It frees the place of the grant, and wakes ticks that waited for the place or for a slot.
func (s *Scheduler) handleFinished(g *grant) {
	s.starts.active.add(g.job.Name, -1)
	s.places.releasePlace(g.task)
	now := s.now()
	if g.job.Recover.Max > 0 { // the run may have left an orphan, and this may be the only replica
		s.inspectAt(g.task, now)
	}
	if k := g.returned; k != nil && k.IsReturning() {
		k.ID, k.Doubted = "", false
		s.agenda.Ask(k, now, now)
	}
	if g.unstarted {
		s.reopenUnstarted(g, now)
	}
	s.recoveries.roomFor(g.task, g.job, g.term, now)
	s.wakeParked(now, g.task)
}
