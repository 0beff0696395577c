package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
)

// events returns the channel of the grants of other replicas. It is nil until all ticks are open that are due: a tick that is not open could not be closed.
func (s *Scheduler) events() <-chan []election.GrantEvent {
	if s.agenda.More() {
		return nil
	}
	return s.grants
}

// handleGrants handles the grants that have been published: a tick that another replica has won need not be claimed.
func (s *Scheduler) handleGrants() {
	for {
		select {
		case n := <-s.events():
			s.handle(n)
		default:
			return
		}
	}
}

// soon is less than the shortest lease lasts, and more than two replicas disagree on the server's time: a grant that ends so soon has ended already.
const soon = 500 * time.Millisecond

// handle closes ticks that others have won, and claims those that wait for a slot, of which one is free. A tick that was claimed here
// already is left to its reply. A job with several grants for one tick is left alone: the event of one grant does not decide the tick.
func (s *Scheduler) handle(events []election.GrantEvent) {
	now := s.now()
	var won []*task
	for _, n := range events {
		t := s.tasks[n.Job]
		switch {
		case t != nil && n.Tick.IsZero():
			s.recoveries.wakeWaiting(t, now)
			s.checkAfter(t, now)
		case t != nil && n.Until.Before(now.Add(soon)): // it was left to a recovery, or given back
			s.inspectAt(t, n.Until)
			continue
		}
		if t == nil || t.PerTick > 1 {
			continue
		}
		i, open := t.Find(n.Tick)
		if !open || t.Open[i].Placed || t.Open[i].IsAsking() {
			continue
		}
		won = append(won, t)
		s.inspectAt(t, n.Until)
		s.agenda.Close(t.Open[i])
	}
	s.wake(now, won...)
}
