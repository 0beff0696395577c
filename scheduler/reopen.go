package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// reopenReturned opens ticks that were granted and given back before their start, because replicas have closed them. These ticks wait: they are not skipped.
func (s *Scheduler) reopenReturned(t *task, st election.State, now time.Time) {
	reason := agenda.Late // the replica that gave it back may record a better reason
	if t.Pool.Name != "" {
		reason = agenda.Pool
	}
	if t.isChained() { // the parents decide which of them are its ticks
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

// reopenTick opens one tick, unless it is open here.
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

// reopenUnstarted opens a tick whose grant was given back because this replica could not start its run, unless another replica has won it.
func (s *Scheduler) reopenUnstarted(g *grant, now time.Time) {
	t := g.task
	if s.leaving {
		return
	}
	switch {
	case g.trigger == recovered: // the orphan awaits a recovery again
		s.inspectAt(t, now)
	case t.isChained(): // the parents decide which of them are its ticks
		s.checkAt(t, now)
	default:
		if i, open := t.Find(g.of.name); open { // for another of its grants
			t.Open[i].Won = max(t.Open[i].Won-1, 0)
			return
		}
		s.reopenTick(t, g.of.name, agenda.Capacity, now)
	}
}

// handleFinished handles a grant that is over: ticks that waited for a place on this replica are claimed at once.
func (s *Scheduler) handleFinished(g *grant) {
	s.starts.active.add(g.job.Name, -1)
	s.places.releasePlace(g.task)
	now := s.now()
	if g.job.Recover.Max > 0 { // it may have left an orphan, and there may be no other replica
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
